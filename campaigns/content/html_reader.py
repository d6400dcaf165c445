"""Shows HTML as text. It imports nothing of mailhub, because a process of its own reads what is long (plain_text)."""


def read(html: str) -> str:
    """The text of HTML. Raises ValueError, RecursionError."""
    from inscriptis import get_text  # not at the top: few processes need it
    from inscriptis.css_profiles import STRICT_CSS_PROFILE
    from inscriptis.model.config import ParserConfig

    reader = ParserConfig(STRICT_CSS_PROFILE, display_images=True, display_links=True)
    reader.attribute_handler.attribute_mapping = {"style": _hide}
    return str(get_text(html, reader))


def _hide(style: str, element: object) -> None:
    """Of an element's style nothing counts but whether it is shown: as characters, paddings would be large."""
    from inscriptis.model.css import CssParse

    if "display:none" in style.replace(" ", "").lower():
        CssParse.attr_display("none", element)
