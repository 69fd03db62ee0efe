"""What the site needs beside its configuration: pages of other folders, links to the API, formulas.

- Pages that lie outside of `docs/`, such as CONTRIBUTING.md, are pages of the site, too.
- Each public module has a page: its docstring, and what its `__all__` names, by theme.
- `REPOSITORY` in a page is `repo_url` of mkdocs.yml.
- The first `code` of a page that is a public name links to its documentation.
- Formulas are MathML, which browsers show without a script.
"""

import ast
import html
import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "keras_diet"
MODULES = ("layers", "models", "training", "pretraining", "samplers", "metrics", "analysis")
EXPERIMENTS = "examples/paper"
OTHER_PAGES = {
    f"{EXPERIMENTS}/README.md": "reproduction/experiments.md",
    **{
        path.relative_to(ROOT).as_posix(): f"reproduction/results/{path.name}"
        for path in sorted((ROOT / EXPERIMENTS / "results").glob("*.md"))
    },
    "CONTRIBUTING.md": "contribute/contributing.md",
    "CHANGELOG.md": "contribute/changes.md",
    "keras_diet/models/diet_bert/presets/diet_bert_tiny_en/README.md": "guides/model_card.md",
}
METHOD = """::: keras_diet.models.{path}
    options: {{heading: {name}, toc_label: {name}, heading_level: 3, show_signature: {is_name}}}"""
# The public names by theme. Modules that are not here have one theme.
THEMES = {
    "layers": {
        "Attention": (
            *("BiasedMultiHeadAttention", "AttentionHook", "ScoreTerms"),
            *("RelativeMultiHeadAttention", "RotaryMultiHeadAttention"),
            *("DisentangledMultiHeadAttention", "TransformerXLMultiHeadAttention"),
            "LinformerMultiHeadAttention",
        ),
        "Biases": (
            *("AbsolutePositionBias", "RelativePositionBias", "SegmentBias"),
            *("BucketedRelativePositionBias", "UntiedPositionBias", "AlibiPositionBias"),
            *("KerplePositionBias", "SandwichPositionBias", "FirePositionBias"),
            *("LogCPBBias", "QueryRelativePositionBias", "ForgettingPositionBias", "PairBias"),
            *("CoordinateBias", "PositionBias"),
        ),
        "Blocks and stacks": (
            *("BiasedTransformerEncoder", "BiasedTransformerDecoder"),
            *("DietEncoder", "DietDecoder", "cache_positions"),
        ),
        "Encodings by name": ("PositionEncoding", "register_position_encoding", "PositionTable"),
    },
    "models": {
        "Backbones": ("DietBertBackbone", "DietTransformerBackbone"),
        "Tasks": (
            *("DietBertTextClassifier", "DietBertTokenClassifier", "DietBertTextEmbedder"),
            *("DietBertTextReranker", "DietBertQuestionAnswerer", "DietBertMaskedLM"),
            "DietTransformerSeq2SeqLM",
        ),
        "Preprocessors": (
            *("DietBertTextClassifierPreprocessor", "DietBertTokenClassifierPreprocessor"),
            *("DietBertTextEmbedderPreprocessor", "DietBertQuestionAnswererPreprocessor"),
            *("DietBertMaskedLMPreprocessor", "DietTransformerSeq2SeqLMPreprocessor"),
        ),
        "Tokenizers": (
            *("HuggingFaceTokenizer", "DietBertTokenizer", "DietBertSentencePieceTokenizer"),
            "DietTransformerTokenizer",
        ),
        "Changes of a model": ("extend_positions", "add_segments", "register_preset"),
    },
    "training": {
        "Resume and data": ("ExactResume", "EpochDataset", "TokenBatches"),
        "Schedules": ("WarmupLinearDecay", "InverseSquareRootDecay", "AccumulatedSteps"),
        "Losses": (
            *("MultipleNegativesRankingLoss", "CosineSimilarityLoss", "CoSENTLoss"),
            *("MatryoshkaLoss", "EmbeddingLoss", "MarginMeanSquaredError"),
            "SmoothedCategoricalCrossentropy",
        ),
        "Weights": ("average_weights",),
    },
    "pretraining": {
        "Text": ("read_documents", "split_sentences", "train_wordpiece_vocabulary"),
        "Packing": (
            *("pack_text_files", "pack_sentences", "write_packed", "pack_with_beam"),
            *("PackedShards", "number_documents", "number_segments"),
        ),
        "Batches": ("masked_lm_dataset", "mask_tokens", "as_tf_dataset", "WarmupLinearDecay"),
        "Languages": ("language_probabilities", "sample_languages"),
    },
}
# Methods of classes of `keras_diet.models` that several classes share, as users call them.
METHODS = {
    "from_preset": "hub.model_files.ModelFiles.from_preset",
    "save_to_preset": "hub.model_files.ModelFiles.save_to_preset",
    "compile of tasks": "hub.data_methods.DataMethods.compile",
    "fit": "hub.data_methods.DataMethods.fit",
    "evaluate": "hub.data_methods.DataMethods.evaluate",
    "predict": "hub.inference.InferenceMethods.predict",
    "DietBertBackbone.from_hugging_face": "diet_bert.hugging_face.weights.read_backbone",
    "from_hugging_face of tasks": "diet_bert.diet_bert_task.DietBertTask.from_hugging_face",
    "export_to_hugging_face": "diet_bert.hugging_face.write.write_hugging_face",
    "DietBertBackbone.from_bert": "diet_bert.convert_bert.convert_bert",
    "from_bert of tasks": "diet_bert.diet_bert_task.DietBertTask.from_bert",
    "enable_lora of backbones": "hub.backbone.HubBackbone.enable_lora",
    "load_lora_weights of backbones": "hub.backbone.HubBackbone.load_lora_weights",
    "quantize": "hub.task.HubTask.quantize",
    "export": "hub.model_files.ModelFiles.export",
    "get_layout_map of backbones": "hub.backbone.HubBackbone.get_layout_map",
}


def public_names(module: str) -> dict[str, str]:
    """Return the public names of a module and where they are defined, without importing it."""
    tree = ast.parse((PACKAGE / module / "__init__.py").read_text(encoding="utf-8"))
    paths = {
        alias.name: f"{node.module}.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    lists = [
        n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__"
    ]
    return {name: paths[name] for name in ast.literal_eval(lists[0])}


PATHS = {module: public_names(module) for module in MODULES}
PATH_OF_NAME = {name: path for names in PATHS.values() for name, path in names.items()}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of other folders, and the pages of the API."""
    for source, page in OTHER_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=moved(text, source, f"docs/{page}")))
    for module, names in PATHS.items():
        source = (PACKAGE / module / "__init__.py").read_text(encoding="utf-8")
        entries = [f"# keras_diet.{module}", str(ast.get_docstring(ast.parse(source)))]
        themes = dict(THEMES.get(module, {}))
        with_theme = {name for members in themes.values() for name in members}
        if others := sorted(set(names) - with_theme, key=str.lower):
            themes["Others" if themes else "All names"] = tuple(others)
        for theme, members in themes.items():
            links = ", ".join(f"[`{name}`][{names[name]}]" for name in members)
            entries += [f"## {theme}", links, *(f"::: {names[name]}" for name in members)]
        if module == "models":
            entries.append("## Methods of several classes")
            for name, path in METHODS.items():
                # Functions behind some methods have other names.
                is_name = str(path.endswith(f".{name}")).lower()
                entries.append(METHOD.format(name=name, path=path, is_name=is_name))
        content = moved("\n\n".join(entries), "", "docs/api/")
        files.append(File.generated(config, f"api/{module}.md", content=content))
    return files


def linked_file(link: str, folder: str) -> str:
    """Return the file that a link in a folder leads to, as the site names it."""
    path = os.path.normpath(os.path.join(folder, link))
    return f"docs/{OTHER_PAGES[path]}" if path in OTHER_PAGES else path


def moved(text: str, source: str, target: str) -> str:
    """Return a page with links that fit another place. The site has no files of code to link to."""
    folder, new_folder = os.path.dirname(source), os.path.dirname(target)

    def new_link(found: re.Match[str]) -> str:
        path, _, anchor = found[2].partition("#")
        if path.startswith("http") or not path:
            return found[0]
        page = linked_file(path, folder)
        if not page.startswith("docs/"):
            return found[1]
        return f"[{found[1]}]({os.path.relpath(page, new_folder)}{'#' if anchor else ''}{anchor})"

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", new_link, text)


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Point links to pages of the site, and link public names to the API."""
    source = f"docs/{page.file.src_uri}"
    if page.file.src_uri.startswith("api/"):
        return markdown
    markdown = moved(markdown.replace("REPOSITORY", kwargs["config"].repo_url), source, source)
    # Code, headings and links have no links inside.
    parts = re.split(r"(^```.*?^```|^#.*?$|\[[^\]]*\]\([^)]*\))", markdown, flags=re.M | re.S)
    linked: set[str] = set()

    def link(found: re.Match[str]) -> str:
        name = found[1].rpartition(".")[2]
        if name not in PATH_OF_NAME or name in linked:
            return found[0]
        linked.add(name)
        return f"[{found[0]}][{PATH_OF_NAME[name]}]"

    parts[::2] = [re.sub(r"`([\w.]+)(\([^`]*\))?`", link, part) for part in parts[::2]]
    return "".join(parts)


def on_page_content(content: str, page: Any, **kwargs: Any) -> str:
    """Turn formulas into MathML, and links of notebooks into links to pages."""

    def formula(found: re.Match[str]) -> str:
        tag = found[1]
        mathml = convert(html.unescape(found[2]), display="block" if tag == "div" else "inline")
        return f'<{tag} class="formula">{mathml}</{tag}>'

    def link(found: re.Match[str]) -> str:
        folder = "docs/notebooks"
        target = re.sub(r"README.md$", "index.md", linked_file(found[1], folder))
        return f'href="{os.path.relpath(os.path.splitext(target)[0], folder)}.html{found[2]}'

    if page.file.src_uri.endswith(".ipynb"):
        content = content.replace("REPOSITORY", kwargs["config"].repo_url)
        content = re.sub(r'href="([^":#]+\.(?:md|ipynb))([#"])', link, content)
        # Not in scripts and code.
        parts = re.split(r"(<(script|style|pre)\b.*?</\2>)", content, flags=re.S)
        for text, tag in ((r"\$\$(.+?)\$\$", "div"), (r"\$([^$<]+)\$", "span")):
            new = rf'<{tag} class="arithmatex">\\(\1\\)</{tag}>'
            parts[::3] = [re.sub(text, new, part) for part in parts[::3]]
        content = "".join(part for i, part in enumerate(parts) if i % 3 != 2)
    pattern = r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>'
    return re.sub(pattern, formula, content, flags=re.S)


class Docstrings(griffe.Extension):
    """Docstrings have a section of the arguments of `call`, and say the types, as in Keras."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Name the section as the parser does, and leave each type to the docstring."""
        if obj.docstring:
            parts = obj.docstring.value.split("Call arguments:\n")
            obj.docstring.value = "Other Parameters: Call arguments\n".join(parts)
        if obj.is_function:
            for parameter in obj.parameters:
                parameter.annotation = None

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Show the arguments that a constructor takes as `**kwargs` for another class."""
        for path in PATH_OF_NAME.values():
            found = pkg[path.removeprefix("keras_diet.")]
            constructor = found.members.get("__init__")
            if isinstance(constructor, griffe.Function):
                constructor.parameters = griffe.Parameters(*all_parameters(constructor, pkg))
                if "args" in [each.name for each in constructor.parameters]:
                    constructor.parameters = griffe.Parameters(*with_keras(constructor))


def all_parameters(constructor: griffe.Function, package: griffe.Module) -> list[griffe.Parameter]:
    """Return the parameters of a constructor, also those of `takes_arguments_of`."""
    parameters = {each.name: each for each in constructor.parameters}
    for decorator in constructor.decorators:
        call = decorator.value
        if isinstance(call, griffe.ExprCall) and str(call.function) == "takes_arguments_of":
            path, *without = call.arguments
            left_out = ast.literal_eval(str(without[0].value)) if without else ()
            others = parameters.pop("kwargs")
            other = package[path.canonical_path.removeprefix("keras_diet.")]["__init__"]
            for each in all_parameters(other, package):
                if each.name not in (*parameters, *left_out, "self", "kwargs"):
                    arguments = {"kind": griffe.ParameterKind.keyword_only, "default": each.default}
                    parameters[each.name] = griffe.Parameter(each.name, **arguments)
            parameters["kwargs"] = others
    return list(parameters.values())


def with_keras(constructor: griffe.Function) -> list[griffe.Parameter]:
    """Return the parameters of attention, with those that it passes on to Keras's layer."""
    keras_folder = Path(str(importlib.util.find_spec("keras").origin)).parent
    path = keras_folder / "src/layers/attention/multi_head_attention.py"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            break
    defaults = [ast.unparse(each) for each in node.args.defaults]
    names = [each.arg for each in node.args.args][-len(defaults) :]
    ours = {each.name: each for each in constructor.parameters if each.name != "args"}
    kind = griffe.ParameterKind.positional_or_keyword
    theirs = [
        griffe.Parameter(name, kind=kind, default=default)
        for name, default in zip(names, defaults, strict=True)
        if name not in ours
    ]
    last = [ours.pop(name) for name in ("scale", "kwargs")]
    return [*ours.values(), *theirs, *last]
