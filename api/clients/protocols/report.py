"""Writes what the clients of other servers can do, from the results of the tests: report.py RESULTS [--report FILE] [--page FILE]"""

import argparse
import datetime
import importlib.metadata
import json
import re
import subprocess
from pathlib import Path

COMMANDS = {"curl": ["curl", "--version"], "fetch": ["node", "--version"], "perf-analyzer": ["cat", "build/perf-analyzer/version"]}
WORDS = {"works": "works", "refused": "an error says why not", "lacks": "is not there"}


def version(client):
    """The version of the package or program that the client's name begins with."""
    program = client.partition(",")[0].partition(".")[0]
    if program not in COMMANDS:
        return importlib.metadata.version(program)
    said = subprocess.run(COMMANDS[program], capture_output=True, text=True, check=True).stdout
    return re.search(r"\d+(\.\d+)+", said).group()


def features(path):
    """By client, each feature with its result: a feature is there if all of its tests have passed."""
    found = {}
    for line in Path(path).read_text().splitlines():
        r = json.loads(line)
        of = found.setdefault(r["client"], {})
        if not r["passed"]:
            of[r["feature"]] = "does not work"
        else:
            of.setdefault(r["feature"], WORDS[r["kind"]])
    return found


def tables(found):
    parts = []
    for client, of in sorted(found.items()):
        rows = "".join(f"| {feature} | {result} |\n" for feature, result in of.items())
        parts.append(f"## {client}\n\nVersion {version(client)}.\n\n| feature | |\n|---|---|\n{rows}")
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--page", type=Path)
    args = parser.parse_args()
    found = features(args.results)
    results = [result for of in found.values() for result in of.values()]
    missing = results.count("does not work")
    count = f"{len(found)} clients, {len(results)} features, {missing} of which do not work"
    print(count)
    if args.report:
        made = f'Made by `make test-clients CLIENTARGS="--report FILE protocols perf_analyzer"`, {datetime.date.today()}: {count}.'
        args.report.write_text(f"# Clients of other servers\n\n{made}\n\n{tables(found)}")
    if args.page:
        args.page.write_text(PAGE + tables(found))


PAGE = """# Clients that work unchanged

What the clients of other servers can do with a gateway. Each line is what a test in `api/clients/protocols` has shown, and this page is made by
`make test-clients CLIENTARGS="--page deploy/guide/reference/clients.md protocols perf_analyzer"`.

"""

if __name__ == "__main__":
    main()
