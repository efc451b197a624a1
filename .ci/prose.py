#!/usr/bin/env python3
"""Count habits of mannered English in docstrings, comments, Markdown and commit messages.

    .ci/prose.py [--limit N] [--since REVISION] [--show] [PATH …]

Prints the matches per 10,000 words of each group, and with --show each match. With --limit the exit status is 1 when a
group of files exceeds N. PATHs restrict the files; --since restricts the commits to REVISION..HEAD. Needs only the
standard library.
"""

# ruff: noqa: T201, S603, S607

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HABITS = {
    name: re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for name, pattern in {
        "whoever, whomever": r"\b(whoever|whomever|whosoever)\b",
        "nobody, somebody": r"\b(nobody|somebody)\b",
        "anew": r"\banew\b",
        "so many, so much, so long": r"\b(so many|so much|so long)\b(?! (as|that)\b)",
        "by turns, its turn": r"\b(by turns|take turns|its turn|their turn|in a turn)\b",
        "any more": r"\bany more\b",
        "is there (exists)": r"\b(who|that|what|which|it|they|is|are|was) (is|are|was|were) there\b",
        "meanwhile": r"\bmeanwhile\b",
        "begun, begins": r"\b(begun|begins?|began)\b",
        "hears, told, says": r"\b(hears?|heard|is told|are told|was told|tells|told|says|said)\b",
        "makes of": r"\b(makes?|made) of\b",
        "sentence opening with What": r"(?:^|[.!?:]\s+)What\b[^.?!]{3,80}[^?]\.",
        "beside(s)": r"\bbesides?\b",
        "goes on": r"\b(goes|go|went|gone) on\b",
        "as ever, for ever": r"\b(by and by|as ever|in vain|for ever|once more|nevertheless|moreover)\b",
        "another than": r"\b(another|others) than\b",
        "of its own": r"\bof (theirs|ours|its own|their own)\b",
        "a look, looks after": r"\b(a look|one look|looks at|looked at|looked after|looks after)\b",
    }.items()
}


def spoken(source: str) -> str:
    """Return the docstrings and comments of a Python file."""
    pieces = [
        ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    pieces += [token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join(pieces)


def git(*arguments: str) -> str:
    """Return the output of a git command. Raises `CalledProcessError`."""
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def files() -> list[str]:
    """List the files of the checkout, without those that git ignores; all files where there is no repository."""
    try:
        return git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    except (OSError, subprocess.CalledProcessError):
        found = [path.relative_to(ROOT) for path in ROOT.rglob("*.*")]
        # Without git's list of ignored files: caches, environments and builds.
        return [str(path) for path in found if path.parts[0] == ".ci" or not path.parts[0].startswith((".", "build"))]


def read_groups(paths: list[str]) -> dict[str, dict[str, str]]:
    """Read the texts to be checked by group and file. paths: restrict the files; empty for all."""
    groups: dict[str, dict[str, str]] = {"code": {}, "tests": {}, "docs": {}}
    for name in files():
        path = ROOT / name
        if not path.exists() or (paths and not any(name.startswith(prefix) for prefix in paths)):
            continue
        if name == ".ci/prose.py":
            # Its list of habits is not an example of them.
            continue
        if name.endswith(".py"):
            groups["tests" if name.startswith("tests/") else "code"][name] = spoken(path.read_text(encoding="utf-8"))
        elif name.endswith(".md") and not name.startswith("benchmarks/results/"):
            groups["docs"][name] = path.read_text(encoding="utf-8")
    return groups


def main() -> int:
    """Print the counts. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Count habits of mannered English.")
    parser.add_argument("paths", nargs="*", help="files or folders, relative to the checkout")
    parser.add_argument("--limit", type=float, help="most matches per 10,000 words of a group of files")
    parser.add_argument("--since", help="also count the commits REVISION..HEAD")
    parser.add_argument("--show", action="store_true", help="print each match")
    options = parser.parse_args()
    groups = read_groups(options.paths)
    if options.since:
        groups["commits"] = {"(log)": git("log", "--format=%s%n%b", f"{options.since}..HEAD")}
    status = 0
    for group, texts in groups.items():
        words = sum(len(re.findall(r"[A-Za-z']+", text)) for text in texts.values())
        found: Counter[str] = Counter()
        for file, text in texts.items():
            for name, pattern in HABITS.items():
                for match in pattern.finditer(text):
                    found[name] += 1
                    if options.show:
                        line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0]
                        print(f"{file}: {name}: {line.strip()[:120]}")
        rate = 10_000 * found.total() / max(words, 1)
        print(f"{group:8} {rate:6.1f} per 10,000 words ({words} words) {dict(found.most_common(4))}")
        if options.limit is not None and rate > options.limit:
            print(f"{group}: more than {options.limit:g} per 10,000 words; --show lists them", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
