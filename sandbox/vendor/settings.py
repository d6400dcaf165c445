"""Settings of the sandbox vendor's behaviour, from command options at the start and POST /settings later."""

import argparse
import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class SimulatedLimit:
    """At most `limit` calls in any `seconds`; written "5/60"."""

    limit: int
    seconds: float

    @classmethod
    def parse(cls, text: str) -> "SimulatedLimit":
        """Parse a limit. Raises ValueError with one sentence."""
        limit, _, seconds = text.partition("/")
        with contextlib.suppress(ValueError):
            if int(limit) >= 0 and 0 < float(seconds) < float("inf"):
                return cls(int(limit), float(seconds))
        raise ValueError(f"throttle must look like 5/60 (calls/seconds), not {text!r}")


def option(default: Any, text: str, **rule: Any) -> Any:
    return field(default=default, metadata={"help": text, **rule})


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the vendor. Rates are fractions; at most one applies to a call, so they sum to at most 1."""

    looks_like: str = option("json", "whose API it has", choices=("json", "twilio", "lob", "ses", "mailgun"))
    login: str = option("", "USER:PASSWORD of who may call; empty: anybody. As the vendor it looks like has them")
    dedupe: bool = option(False, "a known Idempotency-Key is answered 409 with the earlier id, not accepted again")
    lookup_delay: float = option(0.0, "seconds until a look-up finds what was accepted")
    latency_ms: float = option(0.0, "mean time to an answer, milliseconds")
    latency: str = option("fixed", "shape of the latency", choices=("fixed", "exponential"))
    jitter_ms: float = option(0.0, "up to so many milliseconds more or less")
    reset_rate: float = option(0.0, "accepted, then the connection is reset", share=True)
    lost_rate: float = option(0.0, "accepted, the answer never comes, the connection stays open", share=True)
    error_rate: float = option(0.0, "500, not accepted", share=True)
    error_after_rate: float = option(0.0, "500, although accepted", share=True)
    reject_rate: float = option(0.0, "422, refused", share=True)
    slow_rate: float = option(0.0, "accepted, answered only after slow_s", share=True)
    slow_s: float = option(3.0, "how slow slow is, seconds; for slow@ too")
    retry_after_s: float = option(1.0, "how long tempfail@ is asked to wait, seconds, rounded up")
    throttle: str = option("", "N/S: more than N calls in S seconds are answered 429 with Retry-After, and counted")
    down: str = option(
        "", "closed: no connection is accepted; 503: each call is answered so", choices=("", "closed", "503")
    )
    unauthorized: bool = option(False, "each call is answered 401")
    receipts_to: str = option("", "http address that gets its delivery reports; empty: none are sent")
    receipts_secret: str = option("", "the secret that signs the reports: whsec_..., or as the vendor has it")
    receipts_after: float = option(0.0, "seconds from the acceptance to its receipt")
    bounce_rate: float = option(0.0, "share of what was accepted that is reported as bounced")

    def change(self, values: Any) -> "Settings":
        """Return these settings with some other values. Raises ValueError with one sentence."""
        if not isinstance(values, Mapping):
            raise ValueError("settings are a JSON object")
        known = {each.name: each for each in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"no setting {name!r}; there are {', '.join(known)}")
            _check(name, value, known[name].type, known[name].metadata)
        changed = replace(self, **values)
        if sum(getattr(changed, name) for name in SHARES) > 1:
            raise ValueError("the rates together are more than 1")
        return changed

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


SHARES = tuple(each.name for each in fields(Settings) if each.metadata.get("share"))


def _check(name: str, value: Any, kind: Any, rule: Mapping[str, Any]) -> None:
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name} must be a {kind.__name__}, not {value!r}")
    if kind is float and not 0 <= value < float("inf"):
        raise ValueError(f"{name} must not be below 0")
    if "choices" in rule and value not in rule["choices"]:
        raise ValueError(f"{name} must be one of {rule['choices']}")
    if name == "throttle" and value:
        SimulatedLimit.parse(str(value))
    if name == "receipts_to" and value and not str(value).startswith("http://"):
        raise ValueError("receipts_to must begin with http://")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add one command option for each setting."""
    for each in fields(Settings):
        name = "--" + each.name.replace("_", "-")
        if each.type is bool:
            parser.add_argument(
                name, action=argparse.BooleanOptionalAction, default=each.default, help=each.metadata["help"]
            )
        else:
            parser.add_argument(
                name,
                type=each.type,
                default=each.default,
                choices=each.metadata.get("choices"),
                help=each.metadata["help"],
            )


def from_options(options: Mapping[str, Any]) -> Settings:
    """Return the settings in the command's options. Raises ValueError like `change`."""
    return Settings().change({each.name: options[each.name] for each in fields(Settings)})
