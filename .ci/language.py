"""Checks the language of sources and documents: the rules of CONTRIBUTING.md, and the words below.

    language.py [FILE...]     every file of the repository unless some are named
    language.py --words       prints the words that are not used, and those to use instead

Prints one line for each violation: path, line, and the word to use. An exception needs an entry in EXCEPTIONS, with its reason.
"""

import collections
import fnmatch
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = {".rs", ".cuh", ".cu", ".h", ".hpp", ".cpp"}
PROSE = SOURCES | {".md", ".py", ".toml", ".yml"}

# Words of this project's past that the field does not use: matched with each part of an identifier (`last_rung`, `RungError`).
PARTS = {
    "ladder": "mapping backends",
    "rung": "mapping backend; announced",
    "lent": "kernel argument",
    "lend": "kernel argument",
    "consent": "overwrite policy",
    "introduce": "identify",
    "trial": "probe",
    "poster": "send queue",
    "posting": "send queue",
    "served": "ring service",
    "refusal": "queue error",
    "trouble": "request error",
    "book": "symmetric allocator",
    "farewell": "deferred close",
    "leads": "hub neighbours",
    "deal": "partition",
    "dealt": "partitioned",
    "tally": "counters",
    "patience": "deadline",
    "spent": "expired",
    "verdict": "wait status",
    "errand": "pending I/O",
    "relieve": "reclaim",
    "settle": "complete",
    "settled": "completed",
    "recorded": "fixture",
    "parcel": "segment; message",
    "parcels": "segments; messages",
    "news": "frontier; what changed, as a noun",
    "meeting": "barrier; rendezvous",
    "meetings": "barriers; rendezvous",
    "bells": "doorbells",
    "fate": "outcome; fault",
    "bed": "fixture",
    "misstep": "violation of the protocol",
}
# The same, but only as a whole identifier: the lower-case words are ordinary ones.
WHOLE = {
    "Way": "data path",
    "Window": "registered region",
    "Needs": "what it holds, as a noun",
    "Told": "what it holds, as a noun",
    "Made": "what it holds, as a noun",
    "Own": "what it holds, as a noun",
    "Asked": "what it holds, as a noun",
    "Parts": "what it holds, as a noun",
    "Words": "shared-memory access",
    "Card": "peer info",
    "Door": "descriptor-passing listener",
    "Sign": "flag byte",
    "Hear": "callback",
    "Tell": "callback",
    "Offer": "connection info",
    "Looked": "what was opened, as a noun",
    "Abilities": "capabilities",
    "Ringer": "doorbell writer",
    "Thing": "what it is, as a noun",
}
# Comments, documents and messages: the words, their pattern, and what to use instead.
PHRASES = [
    ("ladder", r"\bladders?\b", "mapping backends"),
    ("rung", r"\brungs?\b", "mapping backend; announced"),
    ("mend", r"\bmend(s|ed|ing)?\b", "fix"),
    ("farewell", r"\bfarewells?\b", "deferred close"),
    ("errand", r"\berrands?\b", "pending I/O"),
    ("silicon", r"\bsilicon\b", "physical"),
    ("answers", r"\banswers\b(?! (of|to|from)\b)", "returns; replies"),
    ("ends as", r"\bends as\b", "fails with"),
    ("to be had", r"\b(to|can|could|may) be had\b", "available"),
    ("what has run", r"\bwhat has run\b", "verified on"),
]
# SAFETY comments that give no reason of their own. Each says its reason where it stands.
REFERS = re.compile(r"// ?SAFETY: (as|see|like|likewise|the same|the rules of the header(, (as in|for each of) the following)?\.)(?!\w)", re.I)
OPENING = re.compile(r"(What|Whether|Who|How|The same)\b")

# (path pattern, word): reason.
EXCEPTIONS = {
    ("host/graph/sssp.rs", "settled"): "the word for it in papers on shortest paths",
    ("host/graph/params.rs", "settled"): "the word for it in papers on shortest paths",
    ("kernels/graph/*", "settled"): "the word for it in papers on shortest paths",
    ("tests/device/graph_stress.cpp", "settled"): "the word for it in papers on shortest paths",
    ("host/shmem/*", "Window"): "the word for it in MPI and NCCL",
    ("host/engine/abi/*.rs", "Window"): "the word for it in MPI and NCCL",
    ("tests/*", "Window"): "the word for it in MPI and NCCL",
    ("bindings/*", "Window"): "the word for it in MPI and NCCL",
    ("tests/*", "meeting"): "the socket at which the ranks of a test meet",
    (".ci/language.py", "*"): "names the words",
    (".ci/language_finds.py", "*"): "plants the words",
}

TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      |(?P<string>b?r(?P<hash>\#*)".*?"(?P=hash)|(?:b|c|u8|L)?"(?:\\.|[^"\\])*")
      |(?P<char>b?'(?:\\(?:x[0-9a-fA-F]+|u\{[^}]*\}|.)|[^'\\\n])')
      |(?P<word>[A-Za-z_]\w*)
      |(?P<number>\d\w*(?:\.\d\w*)?)
      |(?P<other>.)""",
    re.X | re.S,
)
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
FILE = re.compile(r"(?<![\w/.*-])(?:[\w.-]+/)*[\w-]+\.(?:rs|cuh|cu|cpp|md|py)\b(?!\()")
# The C and C++ world outside, which comments name too, and SPDK's script.
FOREIGN = re.compile(r"nvme\.rs|main\.rs|lib\.rs|kernel\.cu|my\w*\.\w+|docs\.rs|crates\.io|rpc\.py")


def excepted(path, word):
    return any(fnmatch.fnmatch(path, p) and w in (word, "*") for p, w in EXCEPTIONS)


def tokens(text):
    """Yields kind, text and line of each token of a Rust or C++ source."""
    line = 1
    for match in TOKEN.finditer(text):
        kind = "string" if match.lastgroup == "hash" else match.lastgroup
        yield kind, match.group(0), line
        line += match.group(0).count("\n")


def prose_of(path, text):
    """Yields the lines of comments, messages and documents: line, text, whether it is a comment."""
    if path.suffix in SOURCES:
        for kind, found, line in tokens(text):
            if kind in ("comment", "string"):
                for offset, part in enumerate(found.split("\n")):
                    yield line + offset, part, kind == "comment"
    else:
        for number, found in enumerate(text.split("\n"), 1):
            yield number, found, path.suffix == ".md" or found.lstrip().startswith("#")


def identifiers(path, text):
    for kind, found, line in tokens(text):
        if kind != "word":
            continue
        if found in WHOLE and not excepted(path, found):
            yield line, f"identifier `{found}`: {WHOLE[found]}"
        for part in PART.findall(found):
            if part.lower() in PARTS and not excepted(path, part.lower()):
                yield line, f"identifier `{found}`: {PARTS[part.lower()]}"


def openings(text):
    """Yields comments that begin with a word that does not say what a thing is or does."""
    before = ""
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r"\s*(///?|//!)( @(?:brief|return)s?)? (.*)", line)
        if match and (match.group(2) or not re.match(r"\s*(//|/\*)\S* ?\S", before)):
            opening = OPENING.match(match.group(3))
            if opening:
                yield number, f"comment begins with `{opening.group(1)}`: a verb (\"Returns\") or the noun that it defines"
        before = line


def print_words():
    """Prints the words that are not used: in names, as whole names, and in sentences."""
    for title, words in (("part of a name", PARTS.items()), ("whole name", WHOLE.items()), ("sentence", [(w, i) for w, _, i in PHRASES])):
        print(f"{title}:")
        for word, instead in words:
            print(f"  {word}: {instead}")


def main(names):
    if names == ["--words"]:
        print_words()
        return
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    existing = {name for name in listed if name and (ROOT / name).exists()}
    basenames = {pathlib.PurePath(name).name for name in existing}
    suffixes = {"/".join(pathlib.PurePath(name).parts[i:]) for name in existing for i in range(len(pathlib.PurePath(name).parts))}
    wrong = collections.Counter()
    for name in sorted(names or existing):
        path = pathlib.PurePath(name)
        if path.suffix not in PROSE or name.startswith("examples/data/"):
            continue
        text = (ROOT / name).read_text()
        found = []
        if path.suffix == ".rs":
            found += [("reasons", number, f"`{line.strip()}` only refers elsewhere: say the reason here")
                      for number, line in enumerate(text.split("\n"), 1) if REFERS.search(line)]
        if path.suffix in SOURCES:
            found += [("names", *x) for x in identifiers(name, text)]
            found += [("openings", *x) for x in openings(text)]
        for number, line, is_comment in prose_of(path, text):
            for _, phrase, instead in PHRASES:
                match = re.search(phrase, line, re.I)
                if match and not excepted(name, match.group(0).lower()):
                    found.append(("phrases", number, f"`{match.group(0)}`: {instead}"))
            if is_comment and not excepted(name, "*"):
                for match in FILE.finditer(line):
                    file = re.sub(r"^(\.\.?/)+", "", match.group(0))
                    there = file in suffixes if "/" in file else file in basenames
                    if not there and not FOREIGN.fullmatch(file):
                        found.append(("paths", number, f"`{file}` does not exist"))
        for kind, number, what in sorted(found, key=lambda x: x[1]):
            wrong[kind] += 1
            print(f"{name}:{number}: {what}")
    counts = ", ".join(f"{kind} {wrong[kind]}" for kind in ("names", "openings", "phrases", "paths", "reasons"))
    print(f"language: {counts}")
    sys.exit(1 if wrong else 0)


main(sys.argv[1:])
