"""The tables of decisions of the attention plan.

In each table the first row whose conditions hold decides. The command

    python -m keras_diet.layers.attention.plan_rules

prints the tables, and docs/performance.md shows them. `facts_of` in `plan.py` says what the
conditions mean.
"""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Rule:
    """A row of a table: what is chosen if the conditions hold, and why."""

    choice: str
    why: str
    conditions: dict[str, Any] = dataclasses.field(default_factory=dict)

    def holds(self, facts: dict[str, Any]) -> bool:
        """Whether every condition is met."""
        return all(facts[name] == value for name, value in self.conditions.items())


IMPLEMENTATION_RULES = (
    Rule("blockwise", "The caller asks for blocks.", {"asks_for_blocks": True}),
    Rule("full", "All scores are needed at once.", {"needs_all_scores": True}),
    Rule(
        "features",
        "The kernel of a hook takes features.",
        {"has_hook_kernel": True, "bias_can_be_features": True},
    ),
    Rule("full", "The caller asks for it.", {"implementation": "full"}),
    Rule("features", "The caller asks for it.", {"implementation": "features"}),
    Rule("blockwise", "The caller asks for it.", {"implementation": "blockwise"}),
    Rule("full", "The scores of short sequences fit into memory.", {"is_long": False}),
    Rule(
        "features",
        "The kernel needs no scores in memory.",
        {"bias_can_be_features": True, "kernel_takes_features": True},
    ),
    Rule("blockwise", "Memory grows linearly with the length.", {"bias_can_be_blocks": True}),
    Rule("full", "The bias layer returns all its scores at once."),
)

PROGRAM_RULES = (
    Rule("hook", "A hook brings its own kernel.", {"has_hook_kernel": True}),
    Rule("axes", "Kernels and features have one sequence axis.", {"has_one_axis": False}),
    Rule("scores", "Kernels return no probabilities and drop none.", {"needs_scores": True}),
    Rule("scores", "Kernels overflow in float16, or do not have it.", {"dtype": "float16"}),
    Rule("splash", "The only kernel for TPUs that takes these terms.", {"uses_splash": True}),
    Rule("scores", "Keras calls a kernel for TPUs that ignores a bias.", {"is_on_jax_tpu": True}),
    Rule("scores", "The kernel takes no values larger than the keys.", {"values_fit": False}),
    Rule("kernel", "Nothing is added, as in Keras's layer.", {"adds_terms": False}),
    Rule("kernel", "The caller requires flash attention.", {"flash_attention": True}),
    Rule("kernel", "The kernel takes a bias.", {"kernel_takes_bias": True}),
    Rule("scores", "The backend has no kernel that takes a bias."),
)

BIAS_RULES = (
    Rule("tensor", "No layer has to be asked.", {"has_bias_layer": False}),
    Rule("tensor", "All scores are in memory anyway.", {"is_full": True}),
    Rule(
        "rows",
        "The caller asks for blocks.",
        {"asks_for_blocks": True, "bias_has_rows": True},
    ),
    Rule("features", "They take less memory than rows.", {"bias_has_features": True}),
    Rule("rows", "The bias layer has no features."),
)

LOW_RANK_RULES = (
    Rule(
        "tensor",
        "The compiler for TPUs adds a few outer products inside the softmax.",
        {
            "program": "scores",
            "adds_inside_softmax": True,
            "has_few_features": True,
            "training": False,
            "in_blocks": False,
            "reads_scores": False,
        },
    ),
    Rule(
        "tensor",
        "The kernel reads one bias faster than larger heads.",
        {"program": "kernel", "backend": "torch", "has_full_bias": True, "is_short": True},
    ),
    *(
        Rule(
            "tensor",
            "Columns would copy the keys of a memory in each step.",
            {"reads_memory": True, "is_full": True, "has_few_features": True, **program},
        )
        for program in ({"program": "scores"}, {"program": "kernel", "backend": "torch"})
    ),
    Rule("columns", "A longer sum in the product of queries and keys costs almost nothing."),
)

TABLES = {
    "implementation": IMPLEMENTATION_RULES,
    "program": PROGRAM_RULES,
    "form of a bias layer": BIAS_RULES,
    "form of features and padding": LOW_RANK_RULES,
}


def first_choice(rules: tuple[Rule, ...], facts: dict[str, Any]) -> str:
    """Return the choice of the first rule that holds."""
    return next(rule.choice for rule in rules if rule.holds(facts))


def as_markdown() -> str:
    """Return the tables in Markdown."""
    lines = []
    for name, rules in TABLES.items():
        lines += [f"| {name} | if | because |", "|---|---|---|"]
        for rule in rules:
            items = rule.conditions.items()
            conditions = ", ".join(f"`{name}={value!r}`" for name, value in items)
            lines.append(f"| `{rule.choice}` | {conditions or 'otherwise'} | {rule.why} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(as_markdown())
