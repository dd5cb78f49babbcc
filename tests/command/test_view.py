# SPDX-License-Identifier: Apache-2.0
"""attn view: the data that the page holds, and what a headless browser, where there is one, makes of it."""

import base64
import json
import math
import re
import shutil
import struct
import subprocess
import unittest
from html.parser import HTMLParser
from urllib.parse import unquote

from support import Array, CommandTest, normal, rounded

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
HEADS, TOKENS = 3, 6


def softmax(layer):
    """Causal weights of a few heads, each row a softmax of other scores."""
    values = []
    for head in range(HEADS):
        for i in range(TOKENS):
            parts = [math.exp(math.sin(1 + 7 * layer + 3 * head + 5 * i + j * j)) if j <= i else 0.0
                     for j in range(TOKENS)]
            values += [part / sum(parts) for part in parts]
    return Array((1, HEADS, TOKENS, TOKENS), rounded(values))


class Outline(HTMLParser):
    """The elements of a page, the text of its data, and whatever would be fetched."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.data, self.inside = [], [], "", False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "action")]
        self.inside = tag == "script" and dict(attributes).get("id") == "data"

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, text):
        if self.inside:
            self.data += text


class Pages(CommandTest):
    def setUp(self):
        super().setUp()
        self.layers = {f"layer{n}": softmax(n) for n in range(11)}
        self.write(m_safetensors={**self.layers, "embedding": normal((4, 4), 1), "ids": Array((3,), (1, 2, 3), "<i8")},
                   l_txt="[CLS]\n▁the\n</script><b>\n\"q\"\\\n東京\n\xff\n".encode("utf-8").replace(b"\xc3\xbf", b"\xff"))

    def page(self, *arguments, says="2 of the 13 tensors hold no attention weights and are not on the page"):
        result = self.attn("view", *arguments, "-o", "o.html")
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr, f"attn: {says}\n" if says else "")
        return (self.folder / "o.html").read_text(encoding="utf-8")

    def data(self, page):
        return json.loads(Outline(page).data)

    def halves(self, text):
        return [value for (value,) in struct.iter_unpack("<e", base64.b64decode(text, validate=True))]


class View(Pages):
    def test_data(self):
        page = self.page("m.safetensors", "--labels", "l.txt", "--title", "A <model> & more")
        data = self.data(page)
        self.assertEqual([layer["name"] for layer in data["layers"]], list(self.layers))
        self.assertEqual((data["heads"], data["heads0"], data["rows"], data["columns"]), (HEADS, 0, TOKENS, TOKENS))
        self.assertEqual((data["same"], data["hidden"], data["title"]), (True, True, "A <model> & more"))
        labels = ["[CLS]", "▁the", "</script><b>", "\"q\"\\", "東京", "\ufffd"]
        self.assertEqual(data["rowLabels"], labels)
        self.assertEqual(data["columnLabels"], labels)
        self.assertEqual(len(data["viridis"]), 6 * 256)
        for layer, (name, array) in zip(data["layers"], self.layers.items()):
            values = self.halves(layer["weights"])
            self.assertEqual(values, [struct.unpack("<e", struct.pack("<e", value))[0] for value in array.values], name)

    def test_page_needs_nothing_else(self):
        page = self.page("m.safetensors", "--labels", "l.txt")
        outline = Outline(page)
        self.assertTrue(page.startswith("<!doctype html>"))
        self.assertEqual(outline.links, [])
        self.assertIn("default-src 'none'", page)
        self.assertNotRegex(page, r"https?://|@import|url\(|fetch\(|XMLHttpRequest")
        self.assertEqual(outline.tags.count("script"), 2)
        self.assertNotIn("b", outline.tags, "a label became part of the page")
        self.assertEqual(page, self.page("m.safetensors", "--labels", "l.txt"), "the same data is another page")

    def test_numbers_that_f16_has_not(self):
        tiny = 1e-9
        values = (tiny, 0.5, 0.5 - tiny, 0.0, 0.25, 0.75, math.nan, 0.5, 0.5, -0.25, 1.25, 0.0)
        # Ties go to the even one; what rounds up to the next power of two, to the normal numbers or to infinity.
        more = (1 + 2**-11, 1 + 3 * 2**-11, 1 - 2**-13, 2**-14 - 2**-26, 3 * 2**-25, 2**-24, 65519.0, 65520.0, 1e9)
        self.write(w_safetensors={"w": Array((7, 3), values + more)})
        data = self.data(self.page("w.safetensors", "--hidden", "none",
                                   says="w.safetensors is shown as it is, but these are not the weights of a softmax: it "
                                        "holds 3 of 7 rows that do not sum to 1 (the first, head 0, query 4, sums to 3), "
                                        "1 negative numbers, 1 NaN or infinities"))
        self.assertFalse(data["hidden"])
        values = self.halves(data["layers"][0]["weights"])
        self.assertEqual(values[:6], [2**-24, 0.5, 0.5, 0.0, 0.25, 0.75])
        self.assertTrue(math.isnan(values[6]))
        self.assertEqual(values[7:12], [0.5, 0.5, -0.25, 1.25, 0.0])
        self.assertEqual(values[12:], [1.0, 1 + 2**-9, 1.0, 2**-14, 2**-23, 2**-24, 65504.0, math.inf, math.inf])

    def test_selection(self):
        data = self.data(self.page("m.safetensors:layer1*", "--head", "2", says=None))
        self.assertEqual([layer["name"] for layer in data["layers"]], ["layer1", "layer10"])
        self.assertEqual((data["heads"], data["heads0"], data["rowLabels"]), (1, 2, None))
        array = self.layers["layer10"].astype("<f2").values
        self.assertEqual(self.halves(data["layers"][1]["weights"]), array[2 * TOKENS**2:])
        two = [1.0, 0.0, 0.5, 0.5, 0.25, 0.75, 0.125, 0.875]
        self.write(b_safetensors={"w": Array((2, 1, 2, 2), two, "<f2")}, r_safetensors={"w": Array((2, 3), (1, 0, 0) * 2)})
        data = self.data(self.page("b.safetensors", "--batch", "1", says=None))
        self.assertEqual(self.halves(data["layers"][0]["weights"]), two[4:])
        self.assertFalse(self.data(self.page("r.safetensors", says=None))["same"])

    def test_refusals(self):
        view = ("view", "m.safetensors", "-o", "o.html")
        self.write(e_safetensors={"w": Array((2, 2), (1, 2, 3, 4))}, w_npy=Array((1, 1), (1,)),
                   d_safetensors={"a": Array((1, 1), (1,)), "b": Array((1, 2), (0.5, 0.5))},
                   x_safetensors=b"\x05\0\0\0\0\0\0\0{}")
        self.fails(2, "there is nothing to show", "view", "-o", "o.html")
        self.fails(2, "option --output FILE.html is missing", "view", "m.safetensors")
        self.fails(2, "the page 'o.png' has an unknown format; expected a name that ends in .html", *view[:-1], "o.png")
        self.fails(2, "--head is 3; expected 0 to 2, as there are 3 heads in layer0", *view, "--head", 3)
        self.fails(2, "--batch is 1; expected 0 to 0, as there are 1 batch elements in layer0", *view, "--batch", 1)
        self.fails(2, "--hidden is 'all'; expected zero or none", *view, "--hidden", "all")
        self.fails(2, "no effect", *view, "--labels", "l.txt", "--row-labels", "l.txt", "--column-labels", "l.txt")
        self.fails(2, "w.npy is one array", "view", "w.npy", "-o", "o.html")
        self.fails(1, "holds no attention weights", "view", "e.safetensors", "-o", "o.html")
        self.fails(1, "holds no tensor whose name matches 'x*'", "view", "m.safetensors:x*", "-o", "o.html")
        self.fails(1, "b has 1 heads, 1 queries and 2 keys; expected 1, 1 and 1 as a has", "view", "d.safetensors", "-o",
                   "o.html")
        self.fails(1, "x.safetensors", "view", "x.safetensors", "-o", "o.html")
        self.fails(1, "none.safetensors: cannot open", "view", "none.safetensors", "-o", "o.html")
        self.fails(1, "l.txt has 6 lines; expected 1, one for each query", "view", "d.safetensors:a", "--labels", "l.txt",
                   "-o", "o.html")
        self.write(big_safetensors={"w": Array((1, 600000), [1.0] + [0.0] * 599999)})
        self.fails(1, "the page would hold 1.1 MiB of weights, above the limit of 1 MiB (--limit-mib)", "view",
                   "big.safetensors", "--limit-mib", "1", "-o", "o.html")


# Runs in the page, behind its own script: moves the mouse and uses the controls, and writes down what is then seen.
PROBE = """
<script>
"use strict";
const seen = [];
const spans = () => [...document.querySelectorAll("#tokens span")];
const look = name => seen.push({ name, title: document.querySelector("#title").textContent,
  said: document.querySelector("#said").textContent,
  backgrounds: spans().map(span => span.style.background), classes: spans().map(span => span.className),
  texts: spans().map(span => span.textContent), row: document.querySelector("#row").style.display,
  cell: document.querySelector("#matrix").title, low: document.querySelector("#low").textContent, high: document.querySelector("#high").textContent,
  pixels: [...Array(6).keys()].map(i => [...document.querySelector("#matrix").getContext("2d")
    .getImageData(i, 3, 1, 1).data].slice(0, 3)) });
const set = (id, value) => {
  document.getElementById(id).value = value;
  document.getElementById(id).dispatchEvent(new Event("change"));
};
look("start");
const box = document.querySelector("#matrix").getBoundingClientRect();
document.querySelector("#matrix").dispatchEvent(new MouseEvent("mousemove",
  { clientX: box.left + box.width * 2.5 / 6, clientY: box.top + box.height * 3.5 / 6 }));
look("map");
spans()[4].dispatchEvent(new MouseEvent("mouseenter"));
look("token");
set("scale", "sqrt");
look("sqrt");
set("scale", "log");
look("log");
set("top", "one");
look("one");
set("layer", "1");
document.querySelectorAll("#heads button")[2].click();
look("head");
document.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
document.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowUp" }));
look("keys");
const report = document.createElement("pre");
report.id = "seen";
report.textContent = encodeURIComponent(JSON.stringify({ seen, address: location.hash }));
document.body.append(report);
</script>
"""


@unittest.skipIf(BROWSER is None, "there is no headless browser here")
class Browser(Pages):
    """The page in a browser that has no network."""

    def dump(self, page, address=""):
        (self.folder / "p.html").write_text(page, encoding="utf-8")
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.folder}/profile",
                   "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1300,1000", "--dump-dom",
                   f"file://{self.folder}/p.html{address}"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL)
        self.assertNotRegex(result.stderr, "CONSOLE.*(Uncaught|Refused|Error)")
        return result.stdout

    def seen(self, page, address=""):
        dom = self.dump(page.replace("</body>", PROBE + "</body>"), address)
        report = re.search(r'<pre id="seen">([^<]*)</pre>', dom)
        self.assertIsNotNone(report, dom[-3000:])
        whole = json.loads(unquote(report.group(1)))
        return {look["name"]: look for look in whole["seen"]}, whole["address"]

    def colour(self, data, place):
        at = 6 * min(int(place * 256), 255)
        return tuple(bytes.fromhex(data["viridis"][at:at + 6]))

    def assertColour(self, got, want):
        """A colour of the map, or its neighbour: the last bit of a logarithm is not for tests."""
        self.assertLessEqual(max(abs(a - b) for a, b in zip(got, want)), 4, (got, want))

    def looks_right(self, data, look, layer, head, query, high, place):
        weights = [self.layers[f"layer{layer}"].astype("<f2").at(0, head, query, j) for j in range(TOKENS)]
        for j, weight in enumerate(weights):
            if weight == 0:
                self.assertEqual((look["backgrounds"][j], look["classes"][j].split()[:1]), ("", ["hidden"]))
                continue
            rgb = tuple(map(int, re.findall(r"\d+", look["backgrounds"][j])))
            self.assertColour(rgb, self.colour(data, place(min(weight / high, 1))))
        self.assertEqual([j for j, name in enumerate(look["classes"]) if "query" in name], [query])
        best = max(range(TOKENS), key=lambda j: weights[j])
        self.assertIn(f"Query {query} “{data['rowLabels'][query]}” attends to {data['rowLabels'][best]} (", look["said"])
        self.assertEqual(look["row"], "block")

    def test_hover_scales_layers_and_heads(self):
        page = self.page("m.safetensors", "--labels", "l.txt")
        data = self.data(page)
        looks, address = self.seen(page)
        top = {(layer, head): max(self.layers[f"layer{layer}"].astype("<f2").values[head * 36:head * 36 + 36])
               for layer in range(11) for head in range(HEADS)}
        start = looks["start"]
        self.assertEqual(start["title"], "Attention weights – layer0, head 0")
        self.assertEqual(start["texts"], data["rowLabels"])
        self.assertEqual((start["row"], set(start["backgrounds"])), ("none", {""}))
        # The fourth row of the matrix: colours of weights, and grey behind the diagonal.
        for j, pixel in enumerate(start["pixels"]):
            weight = self.layers["layer0"].at(0, 0, 3, j)
            self.assertColour(pixel, self.colour(data, weight / top[0, 0]) if j <= 3 else (213, 216, 222))
        linear, root = (lambda share: share), math.sqrt
        def logarithm(share): return max(1 + math.log10(share) / 6, 0)
        self.looks_right(data, looks["map"], 0, 0, 3, top[0, 0], linear)
        label, weight = data["rowLabels"], self.layers["layer0"].at(0, 0, 3, 2)
        self.assertEqual(looks["map"]["cell"], f"{label[3]} to {label[2]}: {weight:.3f}")
        self.looks_right(data, looks["token"], 0, 0, 4, top[0, 0], linear)
        self.looks_right(data, looks["sqrt"], 0, 0, 4, top[0, 0], root)
        self.looks_right(data, looks["log"], 0, 0, 4, top[0, 0], logarithm)
        self.looks_right(data, looks["one"], 0, 0, 4, 1, logarithm)
        self.assertEqual((looks["one"]["low"], looks["one"]["high"]), ("1.0e-6", "1.000"))
        self.assertEqual(looks["head"]["title"], "Attention weights – layer1, head 2")
        self.looks_right(data, looks["head"], 1, 2, 4, 1, logarithm)
        self.assertEqual(looks["keys"]["title"], "Attention weights – layer0, head 0")
        self.assertEqual(address, "#layer=0&head=0&query=4&scale=log&top=one")

    def test_address(self):
        page = self.page("m.safetensors", "--labels", "l.txt")
        looks, _ = self.seen(page, "#layer=10&head=1&query=2&scale=sqrt&top=all")
        data = self.data(page)
        top = max(value for array in self.layers.values() for value in array.astype("<f2").values)
        self.looks_right(data, looks["start"], 10, 1, 2, top, math.sqrt)
        looks, _ = self.seen(page, "#layer=11&head=-1&query=x&scale=cubic")
        self.assertEqual(looks["start"]["title"], "Attention weights – layer0, head 0")


if __name__ == "__main__":
    unittest.main()
