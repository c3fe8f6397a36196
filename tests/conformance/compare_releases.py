"""Compares the sources of two releases of transformers or diffusers: what posenc's rows may have to follow.

Prints the new model types that have no row, with the fields of their classes that are about positions; those that are gone;
and those whose configuration class or code for positions changed, with the fields and the changed lines. It parses the
sources and imports neither release. scripts/check-model-types VERSION runs this program.
"""

import argparse
import ast
import collections
import difflib
import json
import pathlib
import re
import subprocess
import tempfile

# Names of fields, and words of code, that are about positions or the width of a head.
OF_POSITIONS = re.compile(
    "rope|rotary|rotate_half|theta|head_dim|position|alibi|relative|distance|inv_freq|mscale|attention_scaling|"
    "log_scaling|attn_scale|floor_scale|temperature_tuning|layer_types|sliding_window|max_source|cos[, )]|sin[, )]")
MANY = 8  # packages in which the same word was renamed, which then says nothing about one of them


# Code that only generates text or trains.
BESIDE = re.compile(r"For[A-Z]\w*\.|prepare_inputs_for_generation|_init_weights|get_rope_index|Embeddings?\.forward$")


class Release:
    """The sources of one release of transformers, unpacked in a directory."""

    def __init__(self, directory):
        self.root = pathlib.Path(directory)
        self.trees = {}
        self.configurations = {}  # {name of a class: (node, file)}
        for file in sorted(self.root.glob("models/*/configuration_*.py")):
            for node in self.parsed(file).body:
                if isinstance(node, ast.ClassDef):
                    self.configurations[node.name] = node, file

    def parsed(self, file):
        if file not in self.trees:
            self.trees[file] = ast.parse(file.read_text())
        return self.trees[file]

    def model_types(self):
        """Returns {model type: name of its configuration class}."""
        found = {}
        for name in ("auto_mappings.py", "configuration_auto.py"):
            for node in ast.walk(self.parsed(self.root / "models" / "auto" / name)):
                if isinstance(node, ast.Tuple) and len(node.elts) == 2 and all(
                        isinstance(item, ast.Constant) and isinstance(item.value, str) for item in node.elts):
                    model_type, class_name = (item.value for item in node.elts)
                    if class_name in self.configurations:
                        found[model_type] = class_name
        return found

    def bases(self, name):
        """Yields the node of a configuration class and those of its base classes."""
        if name in self.configurations:
            node = self.configurations[name][0]
            yield node
            for base in node.bases:
                if isinstance(base, ast.Name):
                    yield from self.bases(base.id)

    def fields(self, name):
        """Returns {field: default} of a configuration class, and its maps and methods as {name: text}."""
        fields, rest = {}, {}
        for node in self.bases(name):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    value = ast.unparse(item.value) if item.value is not None else "required"
                    fields.setdefault(item.target.id, f"{ast.unparse(item.annotation)} = {value}")
                elif isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name) and not item.targets[
                        0].id.startswith("base_model_"):
                    rest.setdefault(item.targets[0].id, ast.unparse(item.value))
                elif isinstance(item, ast.FunctionDef):
                    rest.setdefault(item.name, text_of(item))
        return fields, rest

    def code(self, package):
        """Returns {name of a function or method: text} of a package's modeling files."""
        found = {}
        for file in sorted((self.root / "models" / package).glob("modeling_*.py")):
            for node in self.parsed(file).body:
                found |= functions(node)
        return found

    def package(self, name):
        return self.configurations[name][1].parent.name


class Diffusers(Release):
    """The sources of one release of diffusers. Its model types are the classes of its transformers."""

    def __init__(self, directory):
        super().__init__(directory)
        for file in sorted(self.root.glob("models/transformers/*.py")):
            for node in self.parsed(file).body:
                if isinstance(node, ast.ClassDef) and any("ConfigMixin" in ast.unparse(base) for base in node.bases):
                    self.configurations[node.name] = node, file

    def model_types(self):
        return {name: name for name in self.configurations}

    def fields(self, name):
        init = next((item for item in self.configurations[name][0].body
                     if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
        if init is None:
            return {}, {}
        arguments = init.args.args[1:]
        defaults = ["required"] * (len(arguments) - len(init.args.defaults)) + [
            ast.unparse(value) for value in init.args.defaults]
        return {each.arg: f"{each.annotation and ast.unparse(each.annotation)} = {value}"
                for each, value in zip(arguments, defaults)}, {}

    def code(self, package):
        found = {}
        for node in self.parsed(self.root / "models" / "transformers" / f"{package}.py").body:
            found |= functions(node)
        return found

    def package(self, name):
        return self.configurations[name][1].stem


def functions(node):
    """Returns {name: text} of a function, or of a class's methods."""
    if isinstance(node, ast.FunctionDef):
        return {node.name: text_of(node)}
    if isinstance(node, ast.ClassDef):
        return {f"{node.name}.{item.name}": text_of(item) for item in node.body if isinstance(item, ast.FunctionDef)}
    return {}


def text_of(node):
    """The source of a function without comments, annotations, decorators and documentation."""
    node.decorator_list, node.returns = [], None
    for argument in (*node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
        if argument is not None:
            argument.annotation = None
    if ast.get_docstring(node) is not None:
        node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(node)


def blocks_of(before, after):
    """Yields the lines of each place where two texts differ: those that went and those that came."""
    old, new = before.splitlines(), after.splitlines()
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            yield old[a:b], new[c:d]


def changed_lines(before, after):
    """Returns the lines that one of two texts has about positions, with + or - before them."""
    if before == after:
        return []
    return [f"{mark} {line.strip()}" for went, came in blocks_of(before, after)
            for mark, lines in (("-", went), ("+", came)) for line in lines if OF_POSITIONS.search(line)]


def changes_of(old, new, name, other):
    """Returns lines about how a configuration class changed."""
    (before, before_rest), (after, after_rest) = old.fields(name), new.fields(other)
    lines = [f"+ {field}: {after[field]}" for field in after if field not in before]
    lines += [f"- {field}: {before[field]}" for field in before if field not in after]
    lines += [f"~ {field}: {before[field]} -> {after[field]}" for field in after
              if field in before and before[field] != after[field]]
    for item in dict.fromkeys((*before_rest, *after_rest)):
        lines += [f"{item} {line}" for line in changed_lines(before_rest.get(item, ""), after_rest.get(item, ""))]
    return lines


class Code:
    """How the modeling code of packages that two releases have changed."""

    def __init__(self, old, new, packages):
        self.changed = {}  # {package: {function: (text before, text after)}}
        for package in packages:
            before, after = old.code(package), new.code(package)
            names = dict.fromkeys((*before, *after))
            texts = {name: (before.get(name, ""), after.get(name, "")) for name in names}
            self.changed[package] = {name: pair for name, pair in texts.items() if pair[0] != pair[1]}
        self.renamed = self._renamed()

    def _renamed(self):
        """Returns {word: the word that replaced it} of words that were renamed in many packages."""
        packages = collections.defaultdict(set)
        for package, functions_of_it in self.changed.items():
            for before, after in functions_of_it.values():
                for went, came in blocks_of(before, after):
                    one, other = (re.findall(r"\w+|[^\w\s]", " ".join(lines)) for lines in (went, came))
                    if len(one) == len(other):
                        for pair in zip(one, other):
                            packages[pair].add(package)
        often = {pair: seen for pair, seen in packages.items() if pair[0] != pair[1] and len(seen) >= MANY}
        return {old: new for (old, new), _ in sorted(often.items(), key=lambda item: len(item[1]))}

    def lines(self, package):
        """Returns lines about how a package's code for positions changed, without renamed words."""
        def renamed(text):
            return re.sub(r"\w+", lambda word: self.renamed.get(word[0], word[0]), text)
        return [f"{name} {line}" for name, (before, after) in self.changed[package].items()
                for line in changed_lines(renamed(before), after)]


def is_known(posenc, model_type, key):
    """Returns whether posenc has a row for a model type."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({key: model_type}, file)
        file.flush()
        done = subprocess.run([posenc, "explain", file.name], capture_output=True, text=True, check=False)
    return "is not known" not in done.stderr and "must be a known class" not in done.stderr


def show(title, entries):
    """Prints {name: lines}."""
    print(f"\n{title} ({len(entries)})")
    for name, lines in entries.items():
        print(f"  {name}")
        for line in dict.fromkeys(lines):
            print(f"    {line if len(line) <= 240 else line[:237] + '...'}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--posenc", required=True, help="the command that knows the rows")
    arguments.add_argument("old", type=pathlib.Path, help="the unpacked package of the release that was compared last")
    arguments.add_argument("new", type=pathlib.Path)
    options = arguments.parse_args()
    kind, key = (Diffusers, "_class_name") if options.new.name == "diffusers" else (Release, "model_type")
    old, new = kind(options.old), kind(options.new)
    before, after = old.model_types(), new.model_types()
    missing = {name: [f"{field}: {default}" for field, default in new.fields(class_name)[0].items()
                      if OF_POSITIONS.search(field)]
               for name, class_name in after.items() if name not in before and not is_known(options.posenc, name, key)}
    show("New types without a row", missing)
    show("Gone", {name: [] for name in before if name not in after})
    kept = [name for name in after if name in before]
    fields = {name: changes_of(old, new, before[name], after[name]) for name in kept}
    show("Fields changed", {name: lines for name, lines in fields.items() if lines})
    code = Code(old, new, sorted({new.package(after[name]) for name in kept}))
    words = ", ".join(f"{word} -> {other}" for word, other in code.renamed.items())
    print(f"\nRenamed in {MANY} packages or more, and left out below: {words or 'nothing'}")
    lines = {package: [line for line in code.lines(package) if not BESIDE.search(line.split(" ")[0])]
             for package in code.changed}
    show("Code for positions changed", {package: found for package, found in lines.items() if found})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
