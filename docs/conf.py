"""The site: plain Sphinx and its own theme, so that `pip install '.[docs]'` is all that building it needs."""

import doctest
from importlib import metadata

project = "anarchon"
author = "The anarchon developers"
copyright = "2026, The anarchon developers"
release = version = metadata.version("anarchon")

extensions = ["sphinx.ext.autodoc", "sphinx.ext.doctest", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "examples/*/.venv"]
html_theme = "alabaster"
html_theme_options = {"description": "Scheduled jobs without a leader", "fixed_sidebar": True, "page_width": "1040px"}
html_static_path: list[str] = []

# A name that leads nowhere is a warning, and a warning fails the build.
nitpicky = True
nitpick_ignore_regex = [
    # Other projects' names, which could only be looked up on the network; a type variable; and what nobody need know.
    ("py:.*", r"(?!anarchon).*"),
    ("py:.*", r".*\._[HL]"),
    ("py:class", r"anarchon\.threads\.Threads"),
]

default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
# "Args:" and "Attributes:" as the docstrings have them; an attribute stands in its class, not as an entry of its own.
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Only examples that are meant to run do: the doctest directives, and whatever starts with >>> in a page.
doctest_test_doctest_blocks = "default"
# Sphinx would look at an exception's type alone; what the message says is half of each example.
doctest_default_flags = doctest.ELLIPSIS | doctest.DONT_ACCEPT_TRUE_FOR_1
