# SPDX-License-Identifier: Apache-2.0
"""Measures the English of documents, docstrings and messages; `make lint` runs it. The counts may only fall.

python test/words.py [PATTERN]      prints the texts that match a pattern
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATTERNS = {
    "clause as noun": r"(?i)\bwhat (is|was|are|were|it|they|the|comes?|came|an?|no|has|had|does|this|that|follows)\b",
    "begins with what": r"^\W*(What|Whether|Who)\b",
    "nobody": r"\b([Nn]obody|[Nn]othing|none)\b",
    "goes": r"(?i)\b(goes|go) ",
    "lies": r"(?i)\b(lies|lie|stands?|lacks?|wants)\b",
    "alone": r"(?i)\balone\b",
    "told": r"(?i)\b(is|are|was|were|be) (told|said)\b|\btells?\b",
    "behind": r"(?i)\bbehind\b",
    "gives": r"(?i)\bgives?\b",
    "anew": r"(?i)\b(besides|anew|likewise|meanwhile|whatever|whichever|in place of)\b",
    "passive": r"(?i)\b(is|are|be|was|were) (taken|meant|wanted|asked|refused|left|kept)\b",
    "there is": r"(?i)\b(is|are|was|be) there\b|\bthere (is|are|was|were)\b",
    "is no": r"(?i)\b(is|are|was|were|be) (no (?!longer|more|less|need)\w+|none)\b",
    "look": r"(?i)\b(looked|looks|looking) at\b|\ba look\b",
    "fronted of": r"^\W*Of (?!course)",
}
PROSE = {"mean": 12.5, "long": 1.0, "pattern": 1.0}
"""README and pages: most words a sentence, most sentences of over 30 words (%), most texts with one pattern (%)."""
DOCSTRINGS: dict[str, int] = {}
MESSAGES = {
    "clause as noun": 2,
    "nobody": 14,
    "goes": 2,
    "lies": 1,
    "gives": 4,
    "anew": 1,
    "passive": 2,
    "there is": 13,
    "is no": 1,
    "look": 1,
}
"""Most docstrings and messages with each pattern, 0 where it is absent: lower them when you rewrite some."""
NO_VERB = re.compile(r"_*([a-z]+ed|told|kept|found|made|given|taken|left|said|look|take|note)(_|$)")
"""Names of functions that begin with a participle, or with a word that could mean anything."""
VERBS = {"feed", "need", "seed", "speed"}


def plain(text):
    """Text without markup; code counts as one word."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`+[^`]+`+", "CODE", re.sub(r"\*\*|<[^>]+>", "", text))


def sentences(text):
    """Sentences of at least three words, and cells of tables, without blocks of code."""
    text = re.sub(r"(?ms)^```.*?^```$|<!--.*?-->", "", text)
    running, cells = [], []
    for part in re.split(r"\n\s*\n|\n(?=[-*|#]|\d+\. )", text):
        line = plain(" ".join(part.split()))
        if line.startswith("|"):
            cells += [cell for cell in line.split("|") if len(re.findall(r"[A-Za-z]{2,}", cell)) > 5]
        elif not line.startswith("#"):
            found = re.split(r"(?<=[.!?:])\s+(?=[A-Z*(])", re.sub(r"^([-*]|\d+\.) ", "", line))
            running += [one for one in found if len(re.findall(r"[A-Za-z]{2,}", one)) > 2]
    return running, cells


def texts(package):
    """Docstrings of public definitions by sentence, and messages, of all modules."""
    docstrings, messages = [], []
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        strings, skipped = {}, set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text and not getattr(node, "name", "").startswith("_"):
                    docstrings += sentences(text)[0]
            if isinstance(node, ast.Expr):
                skipped.add(id(node.value))
            if isinstance(node, ast.JoinedStr):
                skipped.update(map(id, ast.walk(node)))
                parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
                strings[id(node), 0] = "".join(parts)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings[id(node), 1] = node.value
        messages += [
            text
            for (key, plain_string), text in strings.items()
            if not (plain_string and key in skipped)
            and isinstance(text, str)
            and len(re.findall(r"\b[a-z]{2,}\b", text)) >= 3
            and " " in text.strip()
        ]
    return docstrings, messages


def names_without_verb(package):
    """Functions of modules, and methods but properties, whose names do not say what they do."""
    for path in sorted(package.rglob("*.py")):
        for owner in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for node in owner.body if isinstance(owner, ast.Module | ast.ClassDef) else ():
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    match = NO_VERB.match(node.name)
                    is_property = any(re.search("property|setter", ast.unparse(one)) for one in node.decorator_list)
                    if match and match[1] not in VERBS and not is_property:
                        yield f"{path.relative_to(package)}:{node.lineno}: {node.name} does not begin with a verb"


def count(found):
    """Texts that match each pattern."""
    return {name: sum(bool(re.search(pattern, text)) for text in found) for name, pattern in PATTERNS.items()}


def main():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    read = [sentences(page.read_text(encoding="utf-8")) for page in pages]
    running, cells = ([text for page in read for text in page[kind]] for kind in (0, 1))
    docstrings, messages = texts(ROOT / "edgefirst_ros")
    for name in sys.argv[1:]:
        for text in (*running, *cells, *docstrings, *messages):
            if re.search(PATTERNS[name], text):
                print(" ".join(text.split())[:160])
        return 0
    faults = []
    lengths = [len(text.split()) for text in running]
    share = {name: 100 * number / len(running + cells) for name, number in count(running + cells).items()}
    shown = {
        "mean": sum(lengths) / len(lengths),
        "long": 100 * sum(length > 30 for length in lengths) / len(lengths),
        "pattern": max(share.values()),
    }
    faults += [
        f"documents: {name} is {shown[name]:.1f}, at most {most}" for name, most in PROSE.items() if shown[name] > most
    ]
    for kind, found, limits in (("docstrings", docstrings, DOCSTRINGS), ("messages", messages, MESSAGES)):
        counts = count(found)
        faults += [
            f"{kind}: {counts[n]} with {n!r}, at most {limits.get(n, 0)}"
            for n in counts
            if counts[n] > limits.get(n, 0)
        ]
    faults += names_without_verb(ROOT / "edgefirst_ros")
    print("\n".join(faults) or f"English: {len(running)} sentences, mean {shown['mean']:.1f} words")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
