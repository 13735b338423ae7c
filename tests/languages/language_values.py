"""What the servers in other languages answer, worked out by hand; chrF by another implementation of it."""

from __future__ import annotations

from typing import Final

from plaudit.reward.v1 import reward_service_pb2 as pb

Expected = float | str
"""A score; or "not_applicable"; or the code of a failure."""

_TWO_TO_70: Final = 2**70

ANSWER_TAG: Final[list[tuple[pb.ColumnValue | None, str, Expected]]] = [
    (pb.ColumnValue(int_value=72), "<answer>72</answer>", 1.0),
    (pb.ColumnValue(int_value=72), "so <answer>\n 72 </answer>.", 1.0),
    (pb.ColumnValue(int_value=72), "<answer>72.0</answer>", 1.0),
    (pb.ColumnValue(int_value=72), "<answer>+072</answer>", 1.0),
    (pb.ColumnValue(int_value=72), "<answer>-72</answer>", 0.0),
    (pb.ColumnValue(int_value=72), "<answer>7</answer><answer>72</answer>", 1.0),
    (pb.ColumnValue(int_value=72), "<answer>72</answer><answer>7</answer>", 0.0),
    (pb.ColumnValue(int_value=72), "<answer>72</answer><answer>7", 1.0),
    (pb.ColumnValue(int_value=72), "<answer>72", 0.0),
    (pb.ColumnValue(int_value=72), "72</answer>", 0.0),
    (pb.ColumnValue(int_value=72), "</answer>72<answer>", 0.0),
    (pb.ColumnValue(int_value=72), "</answer>", 0.0),
    (pb.ColumnValue(int_value=72), "<answer></answer>", 0.0),
    (pb.ColumnValue(int_value=72), "72", 0.0),
    (pb.ColumnValue(int_value=72), "", 0.0),
    (pb.ColumnValue(int_value=72), "<answer>seventy-two 🙂</answer>", 0.0),
    (pb.ColumnValue(int_value=72), "<answer>" + "72 " * 200 + "</answer>", 0.0),
    (pb.ColumnValue(int_value=72), "<answer>1e999999999</answer>", 0.0),
    (pb.ColumnValue(int_value=0), "<answer>-0.00</answer>", 1.0),
    (pb.ColumnValue(int_value=-(2**63)), f"<answer>{-(2**63)}</answer>", 1.0),
    (pb.ColumnValue(int_value=2**63 - 1), f"<answer>{2**63 - 1}</answer>", 1.0),
    (pb.ColumnValue(int_value=2**53 + 1), f"<answer>{2**53}</answer>", 0.0),
    (pb.ColumnValue(double_value=72.0), "<answer>72</answer>", 1.0),
    (pb.ColumnValue(double_value=0.1), "<answer>0.10</answer>", 1.0),
    (pb.ColumnValue(double_value=0.1), "<answer>0.2</answer>", 0.0),
    (pb.ColumnValue(double_value=-2.5e-7), "<answer>-0.00000025</answer>", 1.0),
    (pb.ColumnValue(double_value=1e21), "<answer>1000000000000000000000</answer>", 1.0),
    (pb.ColumnValue(double_value=1.25e22), "<answer>12500000000000000000000</answer>", 1.0),
    (pb.ColumnValue(string_value=" 72.50 "), "<answer>72.5</answer>", 1.0),
    (pb.ColumnValue(json_value=str(_TWO_TO_70)), f"<answer>{_TWO_TO_70}</answer>", 1.0),
    (pb.ColumnValue(json_value=str(_TWO_TO_70)), f"<answer>{_TWO_TO_70 + 1}</answer>", 0.0),
    (pb.ColumnValue(), "<answer>72</answer>", "not_applicable"),
    (None, "<answer>72</answer>", "CODE_INVALID"),
    (pb.ColumnValue(bool_value=True), "<answer>1</answer>", "CODE_INVALID"),
    (pb.ColumnValue(string_value="seventy-two"), "<answer>72</answer>", "CODE_INVALID"),
    (pb.ColumnValue(json_value="[72]"), "<answer>72</answer>", "CODE_INVALID"),
]
"""(column answer, completion, outcome) of answer_tag, which is the same in every language."""

OWN: Final[dict[str, list[tuple[str, str, str, Expected]]]] = {
    "typescript_parses": [
        ("", "", "```ts\nconst x: number = 1;\nexport { x };\n```", 1.0),
        ("", "", "so:\n```TypeScript\ntype A<T> = T extends string ? 1 : 2;\n```\nthat is it", 1.0),
        ("", "", "```ts\nconst a = 1;\nconst b: = 2;\nconst c = 3;\nconst d = 4;\n```", 0.125),
        ("", "", "```ts\nlet = = ;\n```\n```ts\nlet a = 1;\n```", 1.0),
        ("", "", "```ts\nfunction f() {\n  return 1;\n", 0.5 * 2 / 2),
        ("", "", "```js\nlet a = 1;\n```", 0.0),
        ("", "", "const x = 1;", 0.0),
        ('{"language": "tsx"}', "", "```tsx\nconst a = <b>text</b>;\n```", 1.0),
        ('{"language": "js"}', "", "```javascript\nconst a = 1;\nconst b: number = 2;\n```", 0.25),
    ],
    "go_parses": [
        ("", "", "```go\npackage a\n\nfunc f() int { return 1 }\n```", 1.0),
        ("", "", "```go\npackage a\nfunc f() int {return 1}\n```", 0.8),
        ('{"format_weight": 0.5}', "", "```Go\npackage a\nfunc f() int {return 1}\n```", 0.5),
        ("", "", "```go\npackage a\n\nfunc f( {\n}\n```", 0.25),
        ("", "", "```go\nx := 1\n```", 0.0),
        ("", "", "```go\n???\n```\n```go\npackage a\n```", 1.0),
        ("", "", "package a", 0.0),
    ],
    "equations_hold": [
        ("", "", "3 + 4 = 7, and 2 * 5 = 11.", 0.5),
        ("", "", "(1 + 2) * 3 = 9. Then 0.1 + 0.2 = 0.3.", 1.0),
        ("", "", "10 / 4 = 2.5 = 5 / 2", 1.0),
        ("", "", "1,000 + 1 = 1,001; $12 + $30 = $42; 6 \u00d7 7 = 42; 8 ÷ 2 = 4", 1.0),
        ("", "", "10 - 2 - 3 = 5\n2 + 3 * 4 = 20\n-3 + 4 = 1\n7 - -2 = 9", 0.75),
        ("", "", "x - 3 + 4 = 9, 2 + 2 = 4x, x = 5, 1 / 0 = 1, 7 = 7", 0.0),
        ("", "", "10 / 3 = 3.33", 0.0),
        ('{"tolerance": 0.01}', "", "10 / 3 = 3.33", 1.0),
        ('{"min_equations": 4}', "", "1 + 1 = 2 and 2 + 2 = 4", 0.5),
        ("", "", "(" * 5000 + "1 + 1 = 2", 0.0),
        ("", "", "no arithmetic", 0.0),
    ],
    "chrf": [
        ("", "the cat is on the mat", "the cat sat on the mat", 0.645779420625287),
        (
            '{"max_order": 3, "beta": 1}',
            "the cat is on the mat",
            "the cat sat on the mat",
            0.7909821667661633,
        ),
        ("", "Grüße aus München", "Grüße aus Köln", 0.46238778374893336),
        ("", "abcd", "ab", 0.47169811320754707),
        ("", "abc", "a b\nc", 1.0),
        ("", "abc", "xyz", 0.0),
        ("", "abc", "", 0.0),
    ],
    "ruby_parses": [
        ("", "", "```ruby\ndef f = 1\n```", 1.0),
        ("", "", "```RB\nputs [1, 2].sum\n```", 1.0),
        ("", "", "```ruby\na = 1\nb = 2\nb = c d)\ne = 3\n```", 0.25),
        ('{"partial_credit": 0}', "", "```ruby\na = 1\nb = (\n```", 0.0),
        ('{"partial_credit": 0.9}', "", "```ruby\na = 1\n$1 = 2\n```", 0.45),
        ("", "", "```ruby\nclass a; end\n```\n```ruby\nA = 1\n```", 1.0),
        ("", "", "puts 1", 0.0),
    ],
}
"""By reward: (config, column reference or "" for none, completion, score)."""

BAD_CONFIGS: Final[dict[str, list[tuple[str, str]]]] = {
    "answer_tag": [
        ('{"tag": "a b"}', "rewards[0].config.tag"),
        ('{"tag": 5}', "rewards[0].config.tag"),
        ('{"tag": null}', "rewards[0].config.tag"),
        ('{"tga": "answer"}', "tga"),
        ("[]", "rewards[0].config"),
        ("{", "rewards[0].config"),
        ('{"tag": "answer"} {}', "rewards[0].config"),
    ],
    "typescript_parses": [('{"language": "cobol"}', "rewards[0].config.language")],
    "go_parses": [('{"format_weight": 0.6}', "rewards[0].config.format_weight")],
    "equations_hold": [
        ('{"tolerance": -1}', "rewards[0].config.tolerance"),
        ('{"min_equations": 1.5}', "rewards[0].config.min_equations"),
    ],
    "chrf": [
        ('{"max_order": 1.5}', "rewards[0].config.max_order"),
        ('{"beta": true}', "rewards[0].config.beta"),
    ],
    "ruby_parses": [('{"partial_credit": "0.5"}', "rewards[0].config.partial_credit")],
}
"""By reward: configs that are refused, and what the refusal names."""
