"""Medians, their spread, and what may be called a difference.

Spread: 1.4826 times the median absolute deviation, corrected for the number of values; for a normal distribution that is
one standard deviation. It is never taken below one per cent of the median, and there is none for a single value.
A change counts only when it is larger than the two spreads together.
"""

import dataclasses
import math
import statistics

# What the median absolute deviation of so few values is too small by (C. Croux, P. Rousseeuw, "Time-efficient algorithms
# for two highly robust estimators of scale", 1992).
_FEW = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
_FLOOR = 0.01


@dataclasses.dataclass(frozen=True)
class Figure:
    median: float
    spread: float | None
    count: int

    def relative(self):
        """The spread as a part of the median."""
        return None if self.spread is None or self.median == 0 else self.spread / self.median

    def text(self, digits=3):
        value = round_to(self.median, digits)
        part = self.relative()
        return value if part is None else f"{value} ±{100 * part:.0f}%"


def figure(values):
    """None when there is no value."""
    values = [value for value in values if value is not None and not math.isnan(value)]
    if not values:
        return None
    median = statistics.median(values)
    if len(values) == 1:
        return Figure(median, None, 1)
    count = len(values)
    deviation = statistics.median(abs(value - median) for value in values)
    correction = _FEW.get(count, count / (count - 0.8))
    return Figure(median, max(1.4826 * deviation * correction, _FLOOR * abs(median)), count)


@dataclasses.dataclass(frozen=True)
class Change:
    """From one figure to another, as a part of the first. `verdict` takes the spread and the metric's direction."""

    part: float
    spread: float | None

    def verdict(self, higher_is_better):
        if self.spread is None:
            return "unknown"
        if abs(self.part) <= self.spread:
            return "same"
        return "better" if (self.part > 0) == higher_is_better else "worse"


def change(old, new):
    """None when there is nothing to compare."""
    if old is None or new is None or old.median == 0:
        return None
    part = new.median / old.median - 1
    if old.spread is None or new.spread is None:
        return Change(part, None)
    return Change(part, (old.spread + new.spread) / abs(old.median))


def round_to(value, digits=3):
    """`digits` significant digits, without an exponent."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}".replace(",", " ")
