"""The site builds without warnings, has every public name, and works in a browser from disk."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_documentation import MODULES

ROOT = Path(__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
# At every start, it would look for updates.
OPTIONS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium of the distribution")
pytestmark = pytest.mark.any_backend


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)


@pytest.fixture
def page(browser, request):
    """A page of a width. Errors and requests to the network fail the test."""
    faults = []
    page = browser.new_page(viewport={"width": getattr(request, "param", 1280), "height": 800})
    page.on("console", lambda message: message.type == "error" and faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    # The next page ends what the last one still loads.
    page.on(
        "requestfailed",
        lambda failed: failed.failure == "net::ERR_ABORTED" or faults.append(failed.url),
    )
    local = ("file:", "data:", "blob:")
    page.on("request", lambda sent: sent.url.startswith(local) or faults.append(sent.url))
    yield page
    page.close()
    assert not faults


def test_every_public_name_is_in_the_reference(site):
    for module in MODULES:
        html = (site / "api" / f"{module.__name__.split('.')[-1]}.html").read_text("utf-8")
        names = html.partition('id="methods-of-several-classes"')[0]
        ids = {each.rpartition(".")[2] for each in re.findall(r'<h3 id="([\w.]+)"', names)}
        assert ids == set(module.__all__)
        texts = [getattr(module, name).__doc__ or "" for name in module.__all__]
        with_call = sum("Call arguments:\n" in text for text in texts)
        assert html.count("Call arguments") >= with_call


def test_names_in_code_link_to_the_reference(site):
    html = (site / "get_started" / "coming_from.html").read_text("utf-8")
    assert re.search(r'href="\.\./api/layers\.html#[\w.]+\.BiasedMultiHeadAttention"', html)

    for path in site.rglob("*.html"):
        pattern = r'<a class="autorefs [^>]*href="[^"]*\.(\w+)"><code>(?:[\w.]+\.)?(\w+)'
        links = re.findall(pattern, path.read_text("utf-8"))
        assert not [link for link in links if link[0] != link[1]], path


def test_methods_of_the_reference_are_those_of_their_headings(site):
    html = (site / "api" / "models.html").read_text("utf-8")
    # Functions behind methods have other names.
    pattern = r'<h[34] id="[\w.]+\.[A-Z]\w+\.(\w+)"[^>]*>\s*<code[^>]*></code>\s*(\w+)'
    methods = re.findall(pattern, html)
    assert len(methods) > 9
    assert not [method for method in methods if method[0] != method[1]]


def test_pages_have_no_formula_that_is_left_as_text(site):
    pages = [path.read_text("utf-8") for path in site.rglob("*.html")]
    assert sum(page.count("<math") for page in pages) > 20
    assert not [page for page in pages if 'class="arithmatex"' in page]
    texts = [re.sub(r"<(script|style|pre|code)\b.*?</\1>", "", page, flags=re.S) for page in pages]
    assert not [line for text in texts for line in text.splitlines() if "$" in line]


def test_navigation_names_the_encodings_of_pages():
    entries = re.findall(r"- (.+): (encodings/.+)", (ROOT / "mkdocs.yml").read_text("utf-8"))
    assert len(entries) > 14
    for name, page in entries:
        title = (ROOT / "docs" / page).read_text("utf-8").splitlines()[0].lower()
        # "Sinusoids" has the page "Sinusoidal positions".
        assert any(word[:8] in title for word in name.lower().split()), name


def test_pages_have_navigation(site):
    for path in set(site.rglob("*.html")) - {site / "404.html"}:
        sidebar = re.search(r'md-sidebar--primary"[^>]*>', path.read_text("utf-8"))
        assert sidebar, path
        assert "hidden" not in sidebar[0], path


@pytest.mark.parametrize(
    "name", ["diet", "costs", "lengths", "gpu", "searches", "healing", "paper_results", "lesson"]
)
def test_plots_show_the_files(tmp_path, monkeypatch, name):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import draw_site

    monkeypatch.setattr(draw_site, "PICTURES", tmp_path)
    getattr(draw_site, f"draw_{name}")()
    picture = f"{name}.svg"
    assert (tmp_path / picture).read_text() == (ROOT / "docs/pictures" / picture).read_text()


def test_pages_say_where_the_library_is(site):
    """The package is on no index. Its address stands in mkdocs.yml only."""
    address = re.search(r"repo_url: (\S+)", (ROOT / "mkdocs.yml").read_text("utf-8"))[1]
    pages = {path: path.read_text("utf-8") for path in site.rglob("*.html")}
    assert not [path for path, text in pages.items() if "REPOSITORY" in text]
    texts = {path: re.sub(r"<[^>]+>", "", text) for path, text in pages.items()}
    installing = [path for path, text in texts.items() if "git clone" in text or "git+" in text]
    assert len(installing) > 7
    assert not [path for path in installing if address not in texts[path]]
    commands = re.findall(r"pip install[^\n]*keras-diet[^\n]*", "\n".join(texts.values()))
    assert not [command for command in commands if f"git+{address}" not in command]


@needs_chromium
@pytest.mark.parametrize("page", [390], indirect=True)
def test_pages_open_from_disk(site, page):
    """The largest page of each folder. All pages have the same styles and programs."""
    # Servers show 404.html, at any address.
    paths = sorted(set(site.rglob("*.html")) - {site / "404.html"}, key=lambda p: p.stat().st_size)
    assert len(paths) > 60
    of_folders = {path.parent: path for path in paths}
    assert len(of_folders) > 5
    for path in of_folders.values():
        page.goto(path.as_uri())
        assert page.locator("article h1").first.is_visible(), path
        # Nothing is wider than a phone.
        assert page.evaluate("document.documentElement.scrollWidth") == 390, path


@needs_chromium
def test_search_finds_a_class(site, page):
    page.goto((site / "index.html").as_uri())
    page.locator("input.md-search__input").click()
    page.keyboard.type("AbsolutePositionBias")
    result = page.locator(".md-search-result__item a", has_text="AbsolutePositionBias").first
    result.click()
    page.wait_for_url("**/api/layers.html*")


@needs_chromium
def test_formulas_are_drawn(site, page):
    page.goto((site / "encodings" / "diet_abs.html").as_uri())
    formulas = page.locator("math")
    assert formulas.count() > 0
    assert all(formulas.nth(i).bounding_box()["height"] > 5 for i in range(formulas.count()))


@needs_chromium
def test_code_copies(site, browser, page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto((site / "index.html").as_uri())
    code = page.locator(".highlight", has_text="AlibiPositionBias").first
    code.hover()
    code.locator("button.md-code__button, button.md-clipboard").first.click()
    assert "attention_bias=bias(inputs)" in page.evaluate("navigator.clipboard.readText()")


@needs_chromium
@pytest.mark.parametrize("page", [390, 1280], indirect=True)
def test_navigation_works_on_phones_and_desktops(site, page):
    page.goto((site / "index.html").as_uri())
    if page.viewport_size["width"] < 1000:
        page.locator("label.md-header__button[for=__drawer]").click()
        page.locator("nav.md-nav--primary label", has_text="Guides").first.click()
        page.locator("nav.md-nav--primary label", has_text="Inference").first.click()
    else:
        page.locator(".md-tabs a", has_text="Guides").click()
    page.locator("nav.md-nav--primary a:visible", has_text="Beam search").first.click()
    page.wait_for_url("**/guides/beam_search.html")
