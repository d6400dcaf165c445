"""The reviewers' bombs: lists that share their members, eight times as many with each level, shown by an error."""

LEVELS = (7, 8)
LONGEST_FAULT = 300  # characters of a sentence
USED = ("{{ y[a] }}", "{{ l|sort(attribute=a) }}", "{{ l|unique(attribute=a) }}", "{{ y[a[0]] }}")


def nested(levels: int, used: str = USED[0], member: str = "x") -> str:
    """A template of a few hundred bytes."""
    first = f"{{% set a = [{','.join([member] * 8)}] %}}"
    return first + "{% set a = [a,a,a,a,a,a,a,a] %}" * (levels - 1) + used
