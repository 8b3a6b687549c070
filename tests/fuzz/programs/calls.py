"""How a call of a binding's row is spelled: positional or by name, with operators, spread lists, NumPy's names of
parameters."""

from . import vocabulary, vocabulary_edges, vocabulary_nn, vocabulary_torchs  # noqa: F401 (fill the first's table)

SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "div": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
    "matmul": "@", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
PREFIXES = {"neg": "-", "invert": "~", "abs": "abs"}
BUILTINS = {"bool": "bool", "float": "float", "int": "int", "len": "len", "iter": "list", "array": "np.asarray",
            "index": "range(99).__getitem__"}
NUMPY = {"dim": "axis", "keepdim": "keepdims", "input": "x", "other": "x2"}
OWNERS = {"torch.nn.functional": "F"}


def parameters_of(text):
    """(names, how many are positional); spread places are left out."""
    names = text.split()
    positional = names.index("|") if "|" in names else len(names)
    return [n for n in names if n != "|"], positional


def call(d, spelling, arguments):
    """The text of a call; arguments: texts by parameter (a list: sizes that may be spread), None where absent."""
    owner, name, row, parameters, how = spelling
    names, positional = parameters_of(parameters or vocabulary_torchs.PARAMETERS.get(row, ""))
    spread = any(n.startswith("*") for n in names[:positional])
    given = [(n, arguments[n]) for n in names if arguments.get(n) is not None]
    first = given[0][1] if given else "None"
    if not str(first).isidentifier():
        first = f"({first})"
    if owner == "torch.Tensor" and name.startswith("__"):
        return operator(d, name, row, given, how)
    head = f"{first}.{name}" if owner == "torch.Tensor" else f"{OWNERS.get(owner, owner)}.{name}"
    rest = given[1:] if owner == "torch.Tensor" else given
    texts, by_name = [], False
    place = {n: i for i, n in enumerate(names)}
    expected = 1 if owner == "torch.Tensor" else 0
    for n, text in rest:
        if isinstance(text, list):
            text = [str(t) for t in text]
            if spread and d.chance(0.5) and not by_name and place[n] == expected:
                texts += text
                expected = place[n] + 9
                continue
            text = f"({', '.join(text)}{',' if len(text) == 1 else ''})" if d.chance(0.7) else f"[{', '.join(text)}]"
        by_name |= place[n] != expected or place[n] >= positional or d.chance(0.12)
        if n.startswith("*"):
            texts.append(text)
        elif by_name:
            texts.append(f"{NUMPY.get(n, n) if d.chance(0.08) else n}={text}")
        else:
            texts.append(text)
        expected = place[n] + (9 if spread and n in ("size", "shape", "dims", "repeats") else 1)
    return f"{head}({', '.join(texts)})"


def operator(d, name, row, given, how):
    """Operators as Python writes them, mostly; else the method by its name."""
    texts = [text for _, text in given]
    if row == "getitem":
        return f"{texts[0]}[{texts[1]}]"
    if row == "contains":
        return f"({texts[1]} in {texts[0]})"
    if row in BUILTINS and name == f"__{row}__":
        return f"{BUILTINS[row]}({texts[0]})"
    if len(texts) == 1 and row in PREFIXES and d.chance(0.9):
        return f"{PREFIXES[row]}({texts[0]})"
    if len(texts) == 2 and row in SYMBOLS and d.chance(0.85) and how != "in place":
        return f"({texts[1]} {SYMBOLS[row]} {texts[0]})" if how == "swapped" \
            else f"({texts[0]} {SYMBOLS[row]} {texts[1]})"
    first = texts[0] if texts[0].isidentifier() else f"({texts[0]})"
    return f"{first}.{name}({', '.join(texts[1:])})"


def emit(d, spelling, spoil=0.03):
    """Adds a call of a binding's row to the program. 1, or 0: it raised."""
    _, name, row, _, how = spelling
    arguments = vocabulary.ROWS.get(name, vocabulary.ROWS.get(row))(d)
    if d.chance(spoil):
        given = [k for k, v in arguments.items() if v is not None]
        arguments[d.rng.choice(given)] = d.pick("None", "'a'", "1.5", "[1]", "True", "2", "0", d.tensor())
    if row == "setitem":
        return d.step(f"{arguments['self']}[{arguments['key']}] = {arguments['value']}", name)
    if how == "in place" and name.startswith("__i"):
        texts = [t for t in arguments.values() if t is not None][:2]
        return d.step(f"{texts[0]} {SYMBOLS[row]}= {texts[1]}", name)
    text = call(d, spelling, arguments)
    if row in ("empty", "empty_like", "new_empty"):
        new = d.fresh()
        return d.step(f"{new} = {text}\nnote(log, {new})\n{new} = torch.ones_like({new})", name)
    return d.result(text, name) is not None
