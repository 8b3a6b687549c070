"""A page of docs/performance from the JSON of one run of `make bench`: date, machine, tables, and plots as SVG.

    python -m benchmarks.page bench-run.json [--to docs/performance] [--name 2026-11-22-xeon]

Nothing is measured here, and nothing is needed but the file: so the page of a run can be made anew, on any machine."""

import argparse
import datetime
import json
import math
import pathlib
import re
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLACE = ROOT / "docs" / "performance"
TITLES = {"inductor": "torch.compile", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "jit": "torch.jit"}
COLOURS = {"dycl": "#1b6ca8", "eager": "#8a8a8a"}
OTHERS = ("#c8553d", "#6a994e", "#b08900", "#7b5ea7", "#4a4e69")


def title(peer):
    return TITLES.get(peer, peer)


def right(entry):
    """{peer: median in ns} of those whose results were right."""
    return {name: peer["median_ns"] for name, peer in entry["peers"].items() if peer["state"] == "right"
            and peer["median_ns"]}


def number(value, digits=3):
    return "-" if value is None else f"{value:.0f}" if value >= 10**digits else f"{value:.{digits}g}"


# ---- Plots: bars on a logarithmic axis, as text


def bars(heading, rows, unit, base=1.0):
    """rows: (label, [(peer, value)]). Bars grow from `base`; the axis is logarithmic."""
    rows = [(label, found) for label, found in rows if found]
    if not rows:
        return ""
    values = [value for _, found in rows for _, value in found]
    low, high = min(min(values), base), max(max(values), base)
    first, last = math.floor(math.log2(low)), math.ceil(math.log2(high * 1.001))
    left, width, bar, gap = 300, 520, 11, 10

    def x(value):
        return left + width * (math.log2(value) - first) / max(last - first, 1)

    peers = sorted({peer for _, found in rows for peer, _ in found}, key=lambda p: (p != "dycl", p))
    paint = {**dict(zip([p for p in peers if p not in COLOURS], OTHERS * 9)), **COLOURS}
    body, y = [], 52
    for label, found in rows:
        begin = y
        for peer, value in found:
            a, b = sorted((x(base), x(value)))
            body.append(f'<rect x="{a:.1f}" y="{y}" width="{max(b - a, 1):.1f}" height="{bar}" fill="{paint[peer]}"/>')
            body.append(f'<text x="{b + 4:.1f}" y="{y + bar - 1}" font-size="10">{number(value)}{unit}</text>')
            y += bar + 1
        middle = (begin + y) / 2 + 3
        body.append(f'<text x="{left - 8}" y="{middle:.0f}" text-anchor="end" font-size="12">{escape(label)}</text>')
        y += gap
    ticks = range(first, last + 1, max(1, (last - first) // 8))
    grid = [
        f'<line x1="{x(2.0**t):.1f}" y1="44" x2="{x(2.0**t):.1f}" y2="{y}" stroke="#ddd"/>'
        f'<text x="{x(2.0**t):.1f}" y="{y + 14}" text-anchor="middle" font-size="10">{number(2.0**t)}</text>'
        for t in ticks
    ]
    legend = [
        f'<rect x="{left + 110 * i}" y="28" width="10" height="10" fill="{paint[p]}"/>'
        f'<text x="{left + 110 * i + 14}" y="37" font-size="11">{escape(title(p))}</text>'
        for i, p in enumerate(peers)
    ]
    size = f'width="{left + width + 90}" height="{y + 26}" viewBox="0 0 {left + width + 90} {y + 26}"'
    return "\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">',
         '<rect width="100%" height="100%" fill="white"/>',
         f'<text x="8" y="18" font-size="14" font-weight="bold">{escape(heading)}</text>', *legend, *grid, *body,
         "</svg>", ""]
    )


def speed_plot(run):
    """How many times as fast as eager, by medians."""
    rows = []
    for entry in run["workloads"].values():
        medians = right(entry)
        eager = medians.pop("eager", None)
        found = [(peer, eager / time) for peer, time in medians.items() if peer != "limit" and eager]
        rows.append((entry["title"], sorted(found, key=lambda row: (row[0] != "dycl", row[0]))))
    return bars("Times as fast as eager torch (medians)", rows, "x")


def steady_plot(run):
    """Seconds from a cold start to the steady state."""
    rows = []
    for entry in run["workloads"].values():
        found = [(name, peer["settled_s"]) for name, peer in entry["peers"].items() if peer["state"] == "right"
                 and peer["settled_s"]]
        rows.append((entry["title"], sorted(found, key=lambda row: (row[0] != "dycl", row[0]))))
    lowest = min((value for _, found in rows for _, value in found), default=1)
    return bars("Seconds from a cold start to the steady state", rows, " s", lowest / 2)


# ---- The page


def mean(values):
    values = [v for v in values if v]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" + "---:|" * (len(header) - 1)]
    return [*lines, *("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows), ""]


def wrapped(text):
    import textwrap

    return textwrap.wrap(text, 118, break_on_hyphens=False, break_long_words=False)


def page(run, day, plots):
    machine, plan = run["machine"], run["plan"]
    versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in run["versions"].items())
    lines = [f"# Run of {day}", ""]
    lines += wrapped(f"{machine['cpu']}, {machine['cpus']} processors, {run['threads']} threads, Python "
                     f"{machine['python']}, "
                     f"{machine['system']}. {versions}. {plan['rounds']} rounds.")
    limit = run.get("limit") or {}
    if "fma_gflops" in limit:
        lines += ["", *wrapped(f"The machine in this run: multiply-adds {limit['fma_gflops']:.0f} GFLOP/s, matrix "
                               f"product of 1024 (MKL) "
                               f"{limit['gemm_gflops']:.0f} GFLOP/s, reading memory {limit['read_gbytes']:.1f} GB/s.")]
    lines += ["", *(f"![{text}]({name})\n" for name, text in plots)]
    rows, longer = [], []
    for entry in run["workloads"].values():
        medians = right(entry)
        eager, own = medians.get("eager"), medians.get("dycl")
        others = {name: time for name, time in medians.items() if name not in ("eager", "dycl", "limit")}
        best = min(others, key=others.get, default=None)
        if own and best:
            longer.append(others[best] / own)
        state = entry["peers"].get("dycl", {}).get("state", "-")
        rows.append([entry["title"], number(eager and eager / 1e6), number(own / 1e6) if own else state,
                     number(eager / own) if eager and own else "-",
                     f"{number(others[best] / 1e6)} {title(best)}" if best else "-",
                     number(others[best] / own) if best and own else "-"])
    lines += ["Medians. *Best peer*: the fastest other one whose results are eager's; *longer*: its time over dycl's.",
              ""]
    lines += table(["workload", "eager, ms", "dycl, ms", "ratio", "best peer, ms", "longer"], rows)
    if longer:
        lines += [f"Geometric mean of *longer*: {number(mean(longer))}.", ""]
    lines += table(["workload", "first call, s", "steady, s", "over the limit"],
                   [[e["title"], number((e["dycl"] or {}).get("first_call_s")),
                     number((e["dycl"] or {}).get("steady_s")),
                     number((e["dycl"] or {}).get("dycl_to_limit_median"))] for e in run["workloads"].values()])
    return "\n".join(lines).rstrip("\n") + "\n"


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def write(run, day, place, name):
    place.mkdir(parents=True, exist_ok=True)
    plots = []
    for kind, text, made in (("speed", "times as fast as eager", speed_plot(run)),
                             ("steady", "time to the steady state", steady_plot(run))):
        if made:
            (place / f"{name}-{kind}.svg").write_text(made, encoding="utf-8")
            plots.append((f"{name}-{kind}.svg", text))
    (place / f"{name}.md").write_text(page(run, day, plots), encoding="utf-8")
    index = place / "README.md"
    text = index.read_text(encoding="utf-8") if index.exists() else "# Runs\n"
    line = f"- [{day}, {run['machine']['cpu']}]({name}.md)"
    if f"]({name}.md)" not in text:
        text = re.sub(r"\nNo run has been kept.*?(?=\n\n|\Z)", "", text, flags=re.DOTALL).rstrip("\n") + f"\n\n{line}\n"
    index.write_text(text, encoding="utf-8")
    return place / f"{name}.md"


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page",
                                     description="a page of docs/performance from the JSON of a run")
    parser.add_argument("run", help="what `python -m benchmarks --json FILE` wrote")
    parser.add_argument("--to", default=PLACE, type=pathlib.Path, help="the folder (docs/performance)")
    parser.add_argument("--name", help="of the page's files (the date and the processor)")
    parser.add_argument("--day", help="of the run (the file's)")
    options = parser.parse_args()
    source = pathlib.Path(options.run)
    run = json.loads(source.read_text(encoding="utf-8"))
    day = options.day or run.get("day") or datetime.date.fromtimestamp(source.stat().st_mtime).isoformat()
    print(write(run, day, options.to, options.name or slug(f"{day} {run['machine']['cpu']}")[:60]))


if __name__ == "__main__":
    main()
