"""Holds whether a broker decides for the brokers of its name: it leads, it follows, or it stands aside.

    leads          a master that has taken over
    follows        a slave
    stands aside   a broker configured as master that has not taken over: because it still compares its log with its
                   slaves', or because another master of its name is alive (`other`)

`role.py` sets it; `processors/leading.py` refuses requests that only a leader may answer.

Invariant: a broker leads only after it asked for other masters and for what its slaves have.
Answers to: nothing of 4.x, where two masters of one name both lead; 5.x's controller elects one.
"""

from typing import Final, Literal, TypeAlias

from rocketrio_broker.watermark import Watermark

Standing: TypeAlias = Literal["leads", "follows", "stands aside"]

NOT_TAKEN_OVER: Final = "this master has not taken over yet"


class Leadership:
    """The standing of one broker."""

    def __init__(self) -> None:
        self.standing: Standing = "stands aside"
        self.other: str | None = None
        """The live master because of which this broker stands aside; None if it knows of none."""
        self.reason = NOT_TAKEN_OVER
        """Why it does not lead; empty while it leads."""
        self.is_sole = False
        """Whether it has looked for other masters, and none has precedence; no slave may follow its log before that."""
        self.changes = Watermark()
        """Counts the changes of standing."""

    def __repr__(self) -> str:
        return f"<Leadership {self.standing}>"

    @property
    def leads(self) -> bool:
        """Whether the broker decides for its name."""
        return self.standing == "leads"

    @property
    def stands_aside(self) -> bool:
        """Whether the broker is configured as master and does not lead."""
        return self.standing == "stands aside"

    def lead(self) -> None:
        """Decide from now on."""
        self.is_sole = True
        self._change("leads", None, "")

    def follow(self) -> None:
        """Leave the decisions to the master of its name."""
        self.is_sole = False
        self._change("follows", None, "this broker is a slave")

    def stand_aside(
        self, reason: str = NOT_TAKEN_OVER, *, other: str | None = None, is_sole: bool = False
    ) -> None:
        """Decide nothing, because of another live master or because this one has not taken over."""
        self.is_sole = is_sole
        self._change("stands aside", other, reason)

    def _change(self, standing: Standing, other: str | None, reason: str) -> None:
        self.reason = reason
        if (standing, other) != (self.standing, self.other):
            self.standing, self.other = standing, other
            self.changes.advance(self.changes.value + 1)
