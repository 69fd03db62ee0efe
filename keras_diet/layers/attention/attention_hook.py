"""Where a variant of attention steps into the computation."""

import dataclasses
from collections.abc import Callable
from typing import Any

from keras_diet.types import Tensor


@dataclasses.dataclass(frozen=True)
class AttentionHook:
    """The steps of attention that a variant changes.

    A layer that derives from `BiasedMultiHeadAttention` returns a hook from `attention_hook`. A
    `DietEncoder` also takes one in its call, for all its layers. Each field is a function or
    `None`. Attention calls the functions in this order.

        query, key = hook.rotation(query, positions), hook.rotation(key, positions of keys)
        query, key = hook.heads(query, key, start_index)
        bias = bias + hook.bias(query, key, start_index)
        scores = scale query . key + bias + other terms
        scores = hook.scores(scores)
        probabilities = softmax(scores with masks)
        output = hook.output(probabilities . value, probabilities, start_index)

    Fused kernels have no scores in memory, so a hook with `scores` or `output` turns them off.

    Attributes:
        rotation: Changes projected queries or keys `(B, T, H, key_dim)` by their positions, `(T,)`
            or `(B, T)`, as rotary positions do. They begin again in each document of a sequence.
        heads: Changes the projected queries `(B, T, H, key_dim)` and keys `(B, S, H, key_dim)`. In
            a search, the keys of a source have fewer rows than the queries: the first `K` rows of
            queries share the first row of keys, and so on.
        bias: Returns scores `(B, H, T, S)` that depend on the queries, as the key vectors of Shaw
            et al. do. The queries are not scaled. The keys have the rows that `heads` gets.
        scores: Changes the scores `(B, H, T, S)`, as a soft cap does. Padding is not in the scores:
            masks are applied afterwards.
        output: Changes the output `(B, T, H, value_dim)`, as the value vectors of Shaw et al. do.
            The probabilities are `(B, H, T, S)`, after dropout.

    With a block size, `scores` and `output` get a block of queries, and are computed a second time
    for the gradient. The `start_index` of `output` is the position of the first query of the block.

    Example:

    ```python
    class SoftCappedAttention(keras_diet.layers.BiasedMultiHeadAttention):
        def attention_hook(self):
            return keras_diet.layers.AttentionHook(
                scores=lambda scores: 50.0 * keras.ops.tanh(scores / 50.0)
            )

    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    y = SoftCappedAttention(num_heads=4, key_dim=8)(x, x)
    ```

    References:
     - [Gemma Team, 2024](https://arxiv.org/abs/2408.00118), section 2, soft cap
     - [Su et al., 2021](https://arxiv.org/abs/2104.09864), rotary positions
    """

    rotation: Callable[[Tensor, Tensor], Tensor] | None = None
    heads: Callable[[Tensor, Tensor, Any], tuple[Tensor, Tensor]] | None = None
    bias: Callable[[Tensor, Tensor, Any], Tensor] | None = None
    scores: Callable[[Tensor], Tensor] | None = None
    output: Callable[[Tensor, Tensor, Any], Tensor] | None = None

    @property
    def reads_scores(self) -> bool:
        """Whether a function needs the scores or the probabilities in memory."""
        return self.scores is not None or self.output is not None
