"""The equations of the DIET paper and of BERT as slow NumPy loops, to test the library against.

Everything is float64 and independent of `keras_diet`. Equation numbers refer to Chen et al. 2021,
"A Simple and Effective Positional Encoding for Transformers", unless another paper is named.

`tests/layers/bias_layers.py` has the scores of biases.

Sizes: `B` batch, `T` queries, `S` keys, `H` heads, `d` hidden size, `n` positions, `s` segments.
`d_h` is the head size of queries and keys, and `d_v` the head size of values.
Indices: `b` example, `h` head, `i` query, `j` key.
"""

import math

import numpy as np


def bucket_of_distance(distance, num_buckets, max_distance, bidirectional):
    """The bin of a key at `j - i = distance` (Raffel et al. 2020), in exact integer arithmetic.

    With `m` bins for a direction, `e = m // 2` of them exact, and `k` the distance in tokens:
    `k` if `k < e`, else `min(e + floor((m - e) log(k/e) / log(max_distance/e)), m - 1)`.
    """
    one_way = num_buckets // 2 if bidirectional else num_buckets
    exact, logarithmic = one_way // 2, one_way - one_way // 2
    first = one_way if bidirectional and distance > 0 else 0
    distance = abs(distance) if bidirectional else max(-distance, 0)
    if distance < exact:
        return first + distance
    # floor(x) is the largest t with (k/e)^(m-e) >= (max_distance/e)^t.
    t = 0
    while t + 1 < logarithmic and (
        distance**logarithmic * exact ** (t + 1) >= max_distance ** (t + 1) * exact**logarithmic
    ):
        t += 1
    return first + exact + t


def sinusoidal_positions(length, hidden_dim):
    """`sin(i / 10000^(2c/d))` at feature 2c, its cosine at 2c + 1 (Vaswani et al. 2017), (n, d)."""
    positions = np.zeros((length, hidden_dim))
    for i, feature in np.ndindex(positions.shape):
        angle = i / 10000 ** (2 * (feature // 2) / hidden_dim)
        positions[i, feature] = math.cos(angle) if feature % 2 else math.sin(angle)
    return positions


def segment_bias(segment_embedding, query_segment_ids, key_segment_ids=None, num_heads=None):
    """Eq. 2: `E_S(S(i), S(j))`; embedding (H or 1, s, s), ids (B, T) and (B, S) -> (B, H, T, S)."""
    if key_segment_ids is None:
        key_segment_ids = query_segment_ids
    batch_size, query_length = query_segment_ids.shape
    num_heads = num_heads or len(segment_embedding)
    bias = np.zeros((batch_size, num_heads, query_length, key_segment_ids.shape[1]))
    for b, h, i, j in np.ndindex(bias.shape):
        table = of_head(segment_embedding, h)
        bias[b, h, i, j] = row_of(row_of(table, query_segment_ids[b, i]), key_segment_ids[b, j])
    return bias


def multi_head_attention(
    query, value, weights, key=None, bias=None, mask=None, return_scores=False, change=float
):
    """Section 2.1 with eq. 1 and 3: `softmax_j((x_i W_Q)·(x_j W_K)/sqrt(d_h) + bias_ij) (x_j W_V)`.

    query (B, T, d), value and key (B, S, d); `weights`: query_kernel and key_kernel (d, H, d_h),
    query_bias and key_bias (H, d_h), value_kernel (d, H, d_v), value_bias (H, d_v),
    output_kernel (H, d_v, d_out), output_bias (d_out,). `bias` and `mask` broadcast to
    (B, H, T, S). The softmax leaves out keys whose mask is False. A query without any permitted
    key gets zero probabilities. Returns (B, T, d_out), and with `return_scores` also the
    probabilities (B, H, T, S). `change` is a function of each score, before the mask.

    `weights` may also have "scale", which replaces `1/sqrt(d_h)`. Shaw et al. 2018 add a vector
    for the distance `j - i`, from `-c` to `c`, to each head's keys and values. They are
    distance_key_embedding (2c+1, d_h) and distance_value_embedding (2c+1, d_v). Su et al. 2021
    turn queries and keys by their positions: max_wavelength. Dai et al. 2019 add vectors to the
    queries and score projected sinusoids of `i - j`: content_bias `u` and position_bias `v`
    (H, d_h), position_kernel `W_R` (d, H, d_h).
    """
    projected = {}
    key = value if key is None else key
    for name, inputs in (("query", query), ("key", key), ("value", value)):
        kernel, kernel_bias = _float64(weights[f"{name}_kernel"]), weights[f"{name}_bias"]
        projected[name] = np.zeros((*inputs.shape[:2], *kernel.shape[1:]))
        for b, i, h in np.ndindex(projected[name].shape[:3]):
            projected[name][b, i, h] = inputs[b, i] @ kernel[:, h] + kernel_bias[h]
    batch_size, query_length, num_heads, head_dim = projected["query"].shape
    key_length = value.shape[1]
    scale = weights.get("scale", 1.0 / math.sqrt(head_dim))

    def of_distance(name, distance):
        if name not in weights:
            return 0.0
        largest = len(weights[name]) // 2
        return _float64(weights[name][min(max(distance, -largest), largest) + largest])

    scores = np.zeros((batch_size, num_heads, query_length, key_length))
    # A bias that reads the content is a function of the states.
    bias = bias(query, value) if callable(bias) else bias
    bias = np.broadcast_to(0.0 if bias is None else bias, scores.shape)
    mask = np.broadcast_to(True if mask is None else mask, scores.shape)
    for b, h, i, j in np.ndindex(scores.shape):
        query_vector, key_vector = projected["query"][b, i, h], projected["key"][b, j, h]
        key_vector = key_vector + of_distance("distance_key_embedding", j - i)
        if "max_wavelength" in weights:
            query_vector = turned(query_vector, i, weights["max_wavelength"])
            key_vector = turned(key_vector, j, weights["max_wavelength"])
        score = query_vector @ key_vector
        if "position_kernel" in weights:
            kernel = _float64(weights["position_kernel"][:, h])
            score = (query_vector + weights["content_bias"][h]) @ key_vector
            score += (query_vector + weights["position_bias"][h]) @ sinusoids(i - j, kernel)
        if "position_terms" in weights:
            vectors = projected["query"][b, i, h], projected["key"][b, j, h]
            score += disentangled_score(*vectors, weights, h, i - j)
        scores[b, h, i, j] = change(score * scale + bias[b, h, i, j])

    probabilities = np.zeros(scores.shape)
    for b, h, i in np.ndindex(batch_size, num_heads, query_length):
        permitted = [j for j in range(key_length) if mask[b, h, i, j]]
        largest = max((scores[b, h, i, j] for j in permitted), default=0.0)
        total = sum(math.exp(scores[b, h, i, j] - largest) for j in permitted)
        for j in permitted:
            probabilities[b, h, i, j] = math.exp(scores[b, h, i, j] - largest) / total

    output = np.zeros((batch_size, query_length, len(weights["output_bias"])))
    for b, i in np.ndindex(batch_size, query_length):
        output[b, i] = weights["output_bias"]
        for h, j in np.ndindex(num_heads, key_length):
            value_vector = projected["value"][b, j, h] + of_distance(
                "distance_value_embedding", j - i
            )
            weighted_value = probabilities[b, h, i, j] * value_vector
            output[b, i] += weighted_value @ _float64(weights["output_kernel"][h])
    return (output, probabilities) if return_scores else output


def attention_of_heads(query, key, value, scale, bias=0.0, mask=True):
    """`softmax_j(scale q_i . k_j + bias_ij) v_j`; query (B, T, H, d_h), value (B, S, H, d_v).

    For a query without any permitted key, all keys count the same.
    """
    scores = np.where(mask, scale * np.einsum("bihk,bjhk->bhij", query, key) + bias, -1e9)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("bhij,bjhd->bihd", weights / weights.sum(axis=-1, keepdims=True), value)


def disentangled_score(query_vector, key_vector, weights, head, distance):
    """He et al. 2021: `q_i . Kr_d + k_j . Qr_d` of one pair at a distance `i - j`, not scaled.

    `weights`: table with embedding (R, d) and perhaps gamma and beta; position_terms; max_distance;
    num_buckets, or None for a row of each distance; and the projections of queries and keys, or
    position_c2p and position_p2c, with their kernel (d, H, d_h) and bias (H, d_h).
    """
    table, span = weights["table"], weights["num_buckets"] or weights["max_distance"]
    if weights["num_buckets"] is not None and abs(distance) > span // 2:
        middle = span // 2
        ratio = math.log(abs(distance) / middle) / math.log((weights["max_distance"] - 1) / middle)
        bucket = middle + math.ceil(ratio * (middle - 1))
        distance = bucket if distance > 0 else -bucket
    row = _float64(table["embedding"])[min(max(distance + span, 0), 2 * span - 1)]
    if "gamma" in table:
        row = layer_norm(row, table["gamma"], table["beta"], 1e-7)
    score = 0.0
    for term, vector, shared in (("c2p", query_vector, "key"), ("p2c", key_vector, "query")):
        if term in weights["position_terms"]:
            own = (f"position_{term}/kernel", f"position_{term}/bias")
            names = own if own[0] in weights else (f"{shared}_kernel", f"{shared}_bias")
            kernel, bias = _float64(weights[names[0]]), _float64(weights.get(names[1], 0.0))
            score += vector @ (row @ kernel[:, head] + (bias[head] if bias.ndim else 0.0))
    return score


def turned(vector, position, max_wavelength=10_000.0):
    """Su et al. 2021, eq. 15: each pair of numbers turned by its angle. Pairs are half apart."""
    half = len(vector) // 2
    output = np.zeros(2 * half)
    for k in range(half):
        angle = position / max_wavelength ** (2 * k / len(vector))
        a, b = vector[k], vector[k + half]
        output[k] = a * math.cos(angle) - b * math.sin(angle)
        output[k + half] = a * math.sin(angle) + b * math.cos(angle)
    return output


def sinusoids(distance, kernel):
    """Dai et al. 2019: `W_R r_d`, with all sines before the cosines. kernel (d, d_h) -> (d_h,)."""
    size = len(kernel)
    angles = [distance / 10_000 ** (k / size) for k in range(0, size, 2)]
    vector = [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
    return np.array(vector[:size]) @ kernel


def linformer_attention(query, value, weights, key=None, bias=None, valid=None, **kwargs):
    """Eq. 4: `multi_head_attention` to the rows of `E Y` and `F Z` in place of keys and values.

    query (B, T, d), value and key (B, S, d). `weights` as in `multi_head_attention`, and
    key_projection `E` and value_projection `F` (k, n), whose first S columns are used. `bias`
    broadcasts to (B, H, T, k). The projections leave out tokens that are not `valid` (B, S).
    """
    key = value if key is None else key
    valid = np.ones(value.shape[:2], "bool") if valid is None else valid

    def project(name, inputs):
        projection = _float64(weights[name])
        projected = np.zeros((len(inputs), len(projection), inputs.shape[2]))
        for b, row, j in np.ndindex(len(inputs), len(projection), inputs.shape[1]):
            if valid[b, j]:
                projected[b, row] += row_of(projection[row], j) * inputs[b, j]
        return projected

    projected_value, projected_key = (
        project("value_projection", value),
        project("key_projection", key),
    )
    return multi_head_attention(query, projected_value, weights, projected_key, bias, **kwargs)


def layer_norm(x, gamma, beta, epsilon):
    """`gamma (x - mean) / sqrt(variance + epsilon) + beta` over the last axis; any (..., d)."""
    x = _float64(x)
    output = np.zeros(x.shape)
    for index in np.ndindex(x.shape[:-1]):
        row = x[index]
        mean = sum(row) / len(row)
        variance = sum((entry - mean) ** 2 for entry in row) / len(row)
        output[index] = gamma * (row - mean) / math.sqrt(variance + epsilon) + beta
    return output


def rms_norm(x, gamma, beta, epsilon):
    """Zhang and Sennrich 2019: `gamma x / sqrt(mean(x^2) + epsilon) + beta`; any (..., d)."""
    x = _float64(x)
    output = np.zeros(x.shape)
    for index in np.ndindex(x.shape[:-1]):
        mean_square = sum(entry * entry for entry in x[index]) / x.shape[-1]
        output[index] = gamma * x[index] / math.sqrt(mean_square + epsilon) + beta
    return output


def gelu_exact(x):
    """`x/2 (1 + erf(x / sqrt(2)))`; any shape."""
    x = _float64(x)
    return 0.5 * x * (1.0 + np.vectorize(math.erf, otypes=["float64"])(x / math.sqrt(2.0)))


def encoder_block(x, weights, bias=None, mask=None, *, activation, **options):
    """One Transformer layer (section 2.1), x (B, T, d) -> (B, T, d).

    Post-norm, as in BERT: `y = N_1(x + attention(x))`, `z = N_2(y + feed_forward(y))`.
    Pre-norm: `y = x + attention(N_1(x))`, `z = y + feed_forward(N_2(y))`.
    `weights`: "attention" (as in `multi_head_attention`), "attention_norm_gamma" and "_beta" (d,)
    for N_1, "intermediate_kernel" (d, d_ff), "intermediate_bias" (d_ff,), "output_kernel"
    (d_ff, d), "output_bias" (d,), "output_norm_gamma" and "_beta" (d,) for N_2. An "attention" with
    a "key_projection" is Linformer's. Its `mask` must depend on the keys only. `norm` is
    `layer_norm` or `rms_norm`. Without "attention_norm_gamma" there is no N_1.
    """

    def attention(inputs):
        if "key_projection" in weights["attention"]:
            valid = None if mask is None else np.broadcast_to(mask[:, 0, 0], inputs.shape[:2])
            return linformer_attention(inputs, inputs, weights["attention"], bias=bias, valid=valid)
        return multi_head_attention(inputs, inputs, weights["attention"], bias=bias, mask=mask)

    sublayers = {
        "attention_norm": attention,
        "output_norm": lambda inputs: feed_forward(inputs, weights, activation),
    }
    return _block(x, sublayers, weights, **options)


def decoder_block(x, source, weights, bias, cross_bias, mask, cross_mask, *, activation, **options):
    """One decoder layer (Vaswani et al. 2017, section 3.1), x (B, T, d), source (B, S, d).

    As `encoder_block`, where target `i` attends to targets `j <= i`, and with attention to the
    source between self-attention and feed-forward network. `weights` also has "cross_attention",
    "cross_attention_norm_gamma" and "_beta". `bias`, `mask`: (B, H, T, T) of self-attention;
    `cross_bias`, `cross_mask`: (B, H, T, S). All broadcast.
    """
    causal = np.array([[j <= i for j in range(x.shape[1])] for i in range(x.shape[1])])

    def self_attention(inputs):
        terms = {"bias": bias, "mask": mask & causal}
        return multi_head_attention(inputs, inputs, weights["attention"], **terms)

    def cross_attention(inputs):
        return multi_head_attention(
            inputs, source, weights["cross_attention"], bias=cross_bias, mask=cross_mask
        )

    sublayers = {
        "attention_norm": self_attention,
        "cross_attention_norm": cross_attention,
        "output_norm": lambda inputs: feed_forward(inputs, weights, activation),
    }
    return _block(x, sublayers, weights, **options)


def _block(x, sublayers, weights, normalize_first, epsilon, norm=layer_norm):
    """The sublayers, one after the other, each with its residual and the norm of its name."""
    x = _float64(x)
    for name, sublayer in sublayers.items():
        gamma, beta = weights.get(f"{name}_gamma"), weights.get(f"{name}_beta")
        if gamma is None:
            x = x + sublayer(x)
        elif normalize_first:
            x = x + sublayer(norm(x, gamma, beta, epsilon))
        else:
            x = norm(x + sublayer(x), gamma, beta, epsilon)
    return x


def feed_forward(x, weights, activation):
    """`W_2 activation(W_1 x)` with biases, x (B, T, d); `weights` as in `encoder_block`.

    With a "gate_kernel" and "gate_bias", `W_2 (activation(W_1 x) * (W_g x))` (Shazeer 2020).
    """
    hidden = x @ _float64(weights["intermediate_kernel"]) + weights["intermediate_bias"]
    hidden = activation(hidden)
    if "gate_kernel" in weights:
        hidden = hidden * (x @ _float64(weights["gate_kernel"]) + weights["gate_bias"])
    return hidden @ _float64(weights["output_kernel"]) + weights["output_bias"]


def window_mask(length, window):
    """`|i - j| < window`, (T, T). Without a window, all pairs."""
    mask = np.ones((length, length), "bool")
    for i, j in np.ndindex(mask.shape):
        mask[i, j] = window is None or -window < i - j < window
    return mask


def bert_inputs(
    token_embedding,
    token_ids,
    position_embedding=None,
    segment_embedding=None,
    segment_ids=None,
    norm=None,
    epsilon=1e-12,
):
    """Input of BERT: `norm(token[id_i] + position[i] + segment[S(i)])`, ids (B, T) -> (B, T, d).

    token_embedding (vocabulary, d), position_embedding (n, d), segment_embedding (s, d);
    `norm`: (gamma, beta) of the layer norm, or None. DIET omits position and segment here.
    """
    output = np.zeros((*token_ids.shape, token_embedding.shape[1]))
    for b, i in np.ndindex(token_ids.shape):
        output[b, i] = row_of(token_embedding, token_ids[b, i])
        if position_embedding is not None:
            output[b, i] += row_of(position_embedding, i)
        if segment_embedding is not None:
            output[b, i] += row_of(segment_embedding, segment_ids[b, i])
    return output if norm is None else layer_norm(output, *norm, epsilon)


def masked_lm_loss(logits, labels, weights):
    """`sum(w ce) / sum(w)`, `ce = -log softmax(logits)[label]`.

    logits (..., V), labels and weights (...).
    A slot of weight 0 is a filler, and its label is not read.
    """
    logits = _float64(logits)
    total_loss, total_weight = 0.0, 0.0
    for slot in np.ndindex(labels.shape):
        if weights[slot] == 0:
            continue
        largest = max(logits[slot])
        log_total = largest + math.log(sum(math.exp(logit - largest) for logit in logits[slot]))
        total_loss += float(weights[slot]) * (log_total - row_of(logits[slot], labels[slot]))
        total_weight += float(weights[slot])
    return total_loss / total_weight


def finite_difference(function, array, index, step=1e-4):
    """`(f(a + step e) - f(a - step e)) / (2 step)`, where `e` is 1 at `index` and 0 elsewhere."""
    above = np.array(array, dtype="float64")
    below = np.array(array, dtype="float64")
    above[index] += step
    below[index] -= step
    return (float(function(above)) - float(function(below))) / (2.0 * step)


def of_head(weight, head, axis=0):
    """The part of a weight for a head. Shared heads have one."""
    return np.take(weight, head % weight.shape[axis], axis)


def _float64(array):
    return np.asarray(array, dtype="float64")


def row_of(table, index):
    """`table[index]`, but a negative index raises an error."""
    if not 0 <= index < len(table):
        raise IndexError(f"Index {index} is outside of [0, {len(table)}).")
    return table[index]
