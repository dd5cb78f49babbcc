# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx for the site of the documentation, which tools/site makes."""

import os

project = "libattn"
author = "the libattn authors"
copyright = author
version = release = os.environ["ATTN_SITE_VERSION"]
root_doc = "index"
extensions = ["breathe", "myst_parser"]

# Pages are the Markdown files of the sources; their links and headings are those of any viewer of Markdown.
myst_heading_anchors = 4
myst_url_schemes = ["http", "https", "mailto"]

breathe_projects = {"attn": os.environ["ATTN_SITE_XML"]}
breathe_default_project = "attn"
breathe_domain_by_extension = {"h": "c"}
breathe_default_members = ("members",)
breathe_show_include = False

html_theme = "furo"
html_title = f"libattn {version}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
highlight_language = "text"
smartquotes = False
