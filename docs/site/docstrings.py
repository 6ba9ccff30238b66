"""How autodoc shows the library: docstrings in their light form, and signatures as a caller needs them."""

import builtins
import inspect
import re
from typing import Any, Final

import attrs
import markup
from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from tests.test_rooms import PUBLIC

import rocketrio

_LONG: Final = 20
"""Characters of a default that is shown by its name."""
_GENERATOR: Final = re.compile(r"(?:Async)?(?:Generator|Iterator)(?=\[)")
_MANAGERS: Final = (
    (inspect.isasyncgenfunction, "AbstractAsyncContextManager"),
    (inspect.isgeneratorfunction, "AbstractContextManager"),
)
"""What contextlib makes of a generator."""
_NOT_OURS: Final = {*vars(builtins), *(module.partition(".")[2] for module in PUBLIC)}


def with_markup(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Make reStructuredText of a docstring."""
    lines[:] = markup.body("\n".join(lines)).splitlines()


class Named:
    """A default that is shown by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def with_named_defaults(app: Any, obj: Any, bound_method: bool) -> None:
    """Show a default by the name that it has in the function's module, if it is a function or long."""
    if not inspect.isfunction(obj):
        return
    signature = inspect.signature(obj)
    names = {id(value): name for name, value in vars(inspect.getmodule(obj)).items()}
    parameters = [
        each.replace(default=Named(names[id(each.default)]))
        if id(each.default) in names and (callable(each.default) or len(repr(each.default)) > _LONG)
        else each
        for each in signature.parameters.values()
    ]
    vars(obj)["__signature__"] = signature.replace(parameters=parameters)


def with_use(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str, returned: str | None
) -> tuple[str, str | None] | None:
    """Show what the block of an opener gets, and no arguments of what programs do not make."""
    if _is_made_by_others(obj, signature):
        return "", None
    inner = getattr(obj, "__wrapped__", None)
    for is_made_of, manager in _MANAGERS:
        if returned is not None and is_made_of(inner):
            return signature, _GENERATOR.sub(manager, returned, count=1)
    return None


def _is_made_by_others(obj: Any, signature: str) -> bool:
    if not inspect.isclass(obj):
        return False
    if signature == "(*args: object, **kwargs: object)" or obj.__init__ is rocketrio.Error.__init__:
        return True
    fields = attrs.fields(obj) if attrs.has(obj) else ()
    return any(field.init and field.name.startswith("_") for field in fields)


def without_wrong_links(app: Any, doctree: nodes.document) -> None:
    """Take the links from Python's own names, of which the library has some too, and from the last part of a module's.

    Sphinx would link the type `bytes` with a property that is called so, and an argument `metrics` with a module.
    """
    for link in [*doctree.findall(addnodes.pending_xref)]:
        if link["refdomain"] == "py" and link["reftarget"] in _NOT_OURS:
            literal = link.next_node(nodes.literal)
            link.replace_self(literal or nodes.Text(link["reftarget"]))


class NoMembersInContents(SphinxTransform):
    """Leaves members of classes out of a page's contents, which would have hundreds of lines."""

    default_priority = 500

    def apply(self) -> None:
        """Mark the members."""
        for node in self.document.findall(addnodes.desc):
            if isinstance(node.parent, addnodes.desc_content):
                node["no-contents-entry"] = True


def setup(app: Any) -> dict[str, bool]:
    """Register the functions above."""
    app.connect("autodoc-process-docstring", with_markup)
    app.connect("autodoc-before-process-signature", with_named_defaults)
    app.connect("autodoc-process-signature", with_use)
    app.connect("doctree-read", without_wrong_links)
    app.add_transform(NoMembersInContents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
