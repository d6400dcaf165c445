"""Shows HTML as text. Imports nothing of mailhub, because plain_text runs it in a separate process for long HTML."""


def read_html(html: str) -> str:
    """Return the text of HTML. Raises ValueError, RecursionError."""
    from inscriptis import get_text  # imported here because few processes need it
    from inscriptis.css_profiles import STRICT_CSS_PROFILE
    from inscriptis.model.config import ParserConfig

    reader = ParserConfig(STRICT_CSS_PROFILE, display_images=True, display_links=True)
    reader.attribute_handler.attribute_mapping = {"style": _hide_element}
    return str(get_text(html, reader))


def _hide_element(style: str, element: object) -> None:
    """Apply only display:none of an element's style; paddings would become long runs of spaces."""
    from inscriptis.model.css import CssParse

    if "display:none" in style.replace(" ", "").lower():
        CssParse.attr_display("none", element)
