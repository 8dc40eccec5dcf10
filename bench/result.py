"""Publishes the result of a run on an Atari game beside published scores.

    python bench/result.py runs/pong-paper-1 [--episodes 10] [--evaluation FILE] [--online FILE] [--commit HASH]
        --machine DESCRIPTION

Evaluates the run greedily, or reads reports of `meme eval --json` such as the evaluation-*.json files of
bench/game.sh. Writes to docs/results/games: NAME.json with all facts, NAME.jsonl.gz with an excerpt of the metrics,
NAME.svg with the curves, and NAME.md. Then rebuilds the tables of docs/results/games.md from all NAME.json files there
and leaves the rest of that page alone.
"""

import argparse
import datetime
import gzip
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- tables: made by bench/result.py -->", "<!-- end of tables -->"
EMPTY = f"""# Atari games
Results of runs on Atari games. *Score* is the mean and standard deviation over greedy episodes with the averaged
parameters of the last checkpoint; random and human scores and those of the paper's agents are means from published
tables. *Human-normalised* is (score - random) / (human - random): 1 is human level. The page of each run has its
command, protocol and curves.

{BEGIN}
{END}
"""
# The paper's agents in the tables, by their keys in `meme games --json`.
OTHERS = {"meme_200m": "MEME 200M", "meme_1b": "MEME 1B", "agent57_1b": "Agent57 1B"}
# Rows of metrics to keep, evenly over the run, and their significant digits.
ROWS, DIGITS = 60, 3
# Metrics of the published figure. All of them would take hundreds of kilobytes.
CURVES = {"frames", "evaluation/score", "evaluation/frames", "actor/score", "actor/score_by_policy"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path, help="directory of a run")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--evaluation", type=Path, help="report of `meme eval --json` for this run")
    parser.add_argument("--online", type=Path, help="the same with --parameters online")
    parser.add_argument("--commit", help="commit of the binary that trained [default: HEAD]")
    parser.add_argument("--machine", required=True, help="machine that trained, such as 'one H200'")
    parser.add_argument("--meme", default=str(HOME / "target/release/meme"))
    parser.add_argument("--out", type=Path, default=HOME / "docs/results/games")
    arguments = parser.parse_args()
    write(arguments)


def write(arguments):
    """Writes the files of one run and updates the tables."""
    run, out = arguments.run, arguments.out
    name = run.resolve().name
    description = parsed(run / "run.json", read(run / "run.json"))
    metrics = run / "metrics.jsonl"
    # A last line without a newline is still being written.
    rows = [parsed(metrics, line) for line in read(metrics).split("\n")[:-1]]
    if not rows or "learner/updates" not in rows[-1]:
        sys.exit(f"{metrics} has no row with learner/updates: the run has not started to learn")
    games = {game["rom"]: game for game in json.loads(meme(arguments, "games", "--json"))}
    if description["task"] not in games:
        sys.exit(f"{run} trains on {description['task']}, which is not an Atari game")
    if arguments.evaluation:
        evaluation = evaluated(arguments.evaluation, description["task"], "ema")
    else:
        play = ["eval", name, "--runs", str(run.resolve().parent), "--episodes", str(arguments.episodes), "--json"]
        evaluation = json.loads(meme(arguments, *play))
    differences = json.loads(meme(arguments, "config", "diff", description["preset"], str(run), "--json"))
    facts = {
        "name": name,
        "command": command(description, differences),
        "commit": arguments.commit or checked_out(),
        "machine": arguments.machine,
        "date": datetime.datetime.fromtimestamp(description["created_unix"], datetime.timezone.utc).date().isoformat(),
        "frames": rows[-1]["frames"],
        "updates": int(rows[-1]["learner/updates"]),
        "seconds": rows[-1].get("speed/seconds"),
        "game": games[description["task"]],
        "evaluation": evaluation,
    }
    if arguments.online:
        facts["online"] = evaluated(arguments.online, description["task"], "online")
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    # Without a timestamp in the header, equal metrics give equal files.
    with open(out / f"{name}.jsonl.gz", "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write("".join(json.dumps(row) + "\n" for row in thinned(rows)).encode())
    findings = draw(arguments, rows, description["task"], out / f"{name}.svg")
    (out / f"{name}.md").write_text(page(facts, findings))
    update_tables(out)


def read(path):
    """The text of a file."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{path} can't be read: {getattr(error, 'strerror', None) or error}")


def parsed(path, text):
    """The JSON object in the text of a file."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        sys.exit(f"{path} is damaged: {error}")
    if not isinstance(value, dict):
        sys.exit(f"{path} is damaged: not a JSON object")
    return value


def evaluated(path, game, parameters):
    """Reads a report of `meme eval --json` for a game and a set of parameters."""
    report = parsed(path, read(path))
    protocol = report.get("protocol")
    if not isinstance(protocol, dict) or "scores" not in report:
        sys.exit(f"{path} is not a report of `meme eval --json`")
    if protocol.get("environment") != game:
        sys.exit(f"{path} is an evaluation of {protocol.get('environment')}, not of {game}")
    if protocol.get("parameters") != parameters:
        sys.exit(f"{path} is an evaluation of {protocol.get('parameters')} parameters, not of {parameters} ones")
    return report


def meme(arguments, *words):
    """The output of a `meme` command."""
    try:
        done = subprocess.run([arguments.meme, *words], stdout=subprocess.PIPE, text=True)
    except OSError as error:
        sys.exit(f"{arguments.meme} can't be run ({error.strerror}): run `make build`, or set --meme")
    if done.returncode:
        sys.exit(f"`meme {shlex.join(words)}` failed, see above")
    return done.stdout


def checked_out():
    """The commit checked out, and whether there are uncommitted changes."""
    git = ["git", "-C", str(HOME)]
    commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    if commit.returncode:
        sys.exit("not a git checkout: name the commit with --commit")
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD"]).returncode
    return commit.stdout.strip() + (" with changes" if changed else "")


def command(description, differences):
    """The command that starts the same run, from its description and its differences from its preset."""
    words = ["meme", "train", description["task"], "--preset", description["preset"]]
    words += ["--seed", str(description["seed"])]
    for difference in differences:
        path, value = difference["path"], difference["right"]
        if path == "run.frames":
            words += ["--frames", str(value)]
        elif path != "run.seed":
            words += ["--set", f"{path}={toml(value)}"]
    return shlex.join(words)


def toml(value):
    """A config value as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def thinned(rows):
    """At most ROWS of the rows, including the last, with DIGITS digits."""
    every = -(-len(rows) // ROWS)
    kept = rows[::-1][::every][::-1]
    return [{name: shortened(value) for name, value in row.items()} for row in kept]


def shortened(value):
    """A number, or a list of them, with DIGITS digits."""
    if isinstance(value, list):
        return [shortened(entry) for entry in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def draw(arguments, rows, game, figure):
    """Draws a small figure of the scores, and returns what `meme plot` finds in all metrics."""
    with tempfile.TemporaryDirectory() as directory:
        excerpt = Path(directory) / f"{figure.stem}.jsonl"
        excerpt.write_text("".join(json.dumps(row) + "\n" for row in curves(thinned(rows))))
        meme(arguments, "plot", str(excerpt), "--game", game, "--out", str(figure))
        return meme(arguments, "plot", str(arguments.run), "--out", str(Path(directory) / "all.svg"))


def curves(rows):
    """The rows with frames and the metrics of the published figure only."""
    return [{name: value for name, value in row.items() if name in CURVES} for row in rows]


def page(facts, findings):
    """The page of one run."""
    evaluation, protocol = facts["evaluation"], facts["evaluation"]["protocol"]
    atari = protocol["atari"]
    name = facts["name"]
    scores = " ".join(f"{score:g}" for score in evaluation["scores"])
    checks = "\n".join(line for line in findings.splitlines()[1:] if not line.endswith(".svg"))
    return f"""# {name}

```
{facts["command"]}
```

| | |
|---|---|
| commit | {facts["commit"]} |
| machine, date | {facts["machine"]}, {facts["date"]} |
| frames, updates | {grouped(facts["frames"])}, {grouped(facts["updates"])} |
| time | {minutes(facts)} |
| final evaluation | {evaluation["mean"]:.2f}{deviation(evaluation)}, {protocol["episodes"]} episodes |
| human-normalised | {evaluation["human_normalised"]:.3f} |
| scores | {scores} |
| with online parameters | {online(facts)} |
| protocol | checkpoint at {grouped(protocol["checkpoint_frames"])} frames, {protocol["parameters"]} parameters, \
policy {protocol["policy"]} of {protocol["policies"]}, epsilon {protocol["epsilon"]:g}, seed {protocol["seed"]}, up to \
{atari["noop_max"]} no-ops, sticky actions {atari["sticky_probability"]:g}, {atari["action_set"]} action set, action \
repeat {atari["action_repeat"]}, cap {grouped(atari["frame_cap"])} frames |

Findings of `meme plot`:
```
{checks}
```

![curves]({name}.svg)

An excerpt of the metrics is in [{name}.jsonl.gz]({name}.jsonl.gz):
```
zcat {name}.jsonl.gz | meme plot /dev/stdin --game {facts["game"]["rom"]} --out x.svg
```
"""


def update_tables(out):
    """Rebuilds the tables of the page beside `out`."""
    found = sorted(out.glob("*.json"))
    all_facts = [parsed(path, read(path)) for path in found]
    all_facts.sort(key=lambda facts: (facts["game"]["rom"], facts["frames"], facts["name"]))
    index = out.with_suffix(".md")
    text = index.read_text() if index.exists() else EMPTY
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"{index} needs exactly one line `{BEGIN}` and one line `{END}` around the tables")
    before, rest = text.split(BEGIN)
    index.write_text(before + BEGIN + "\n" + tables(all_facts, out.name) + END + rest.split(END)[1])


def tables(all_facts, directory):
    """The runs with their scores, the published scores of their games, and the curves."""
    heading = ["game", "run", "score", "human-normalised", "human", "frames", "time", "machine", "seed", "commit"]
    lines = ["| " + " | ".join(heading) + " |", "|---|---|---:|---:|---:|---:|---:|---|---:|---|"]
    for facts in all_facts:
        game, evaluation = facts["game"], facts["evaluation"]
        cells = [game["rom"], f"[{facts['name']}]({directory}/{facts['name']}.md)"]
        cells += [f"{evaluation['mean']:.2f}{deviation(evaluation)}", f"{evaluation['human_normalised']:.2f}"]
        cells += [f"{game['human']:.1f}", grouped(facts["frames"]), minutes(facts), facts["machine"]]
        cells += [str(evaluation["protocol"]["seed"]), facts["commit"]]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| game | random | human | " + " | ".join(OTHERS.values()) + " |", "|---" + "|---:" * (2 + len(OTHERS)) + "|"]
    for name, game in {facts["game"]["rom"]: facts["game"] for facts in all_facts}.items():
        published = [game["random"], game["human"], *(game[key]["mean"] for key in OTHERS)]
        lines.append("| " + " | ".join([name, *(f"{score:.1f}" for score in published)]) + " |")
    for facts in all_facts:
        lines += ["", f"![curves of {facts['name']}]({directory}/{facts['name']}.svg)"]
    return "\n".join(lines) + "\n"


def minutes(facts):
    """The training time."""
    return "unknown" if facts["seconds"] is None else f"{facts['seconds'] / 60:.1f} min"


def online(facts):
    """The score with online parameters, if evaluated."""
    evaluation = facts.get("online")
    return f"{evaluation['mean']:.2f}{deviation(evaluation)}" if evaluation else "not evaluated"


def deviation(evaluation):
    """The standard deviation over episodes, if there are several."""
    return "" if evaluation["std"] is None else f" ± {evaluation['std']:.2f}"


def grouped(number):
    """An integer in groups of three digits."""
    return f"{number:_}".replace("_", " ")


if __name__ == "__main__":
    main()
