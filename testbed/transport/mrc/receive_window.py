"""Which PSNs have arrived: a cumulative acknowledgement and a bitmap above it, and which 64 of its bits a SACK carries."""

from __future__ import annotations

SACK_BITS = 64
_SACK_MASK = (1 << SACK_BITS) - 1


class ReceiveWindow:
    """`cack`: every PSN up to it has arrived. Bit i of `bitmap` is PSN cack + 1 + i; bit 0 is clear by definition."""

    __slots__ = ("_middle", "_turn", "bitmap", "cack")

    def __init__(self, first_psn: int) -> None:
        self.cack = first_psn - 1
        self.bitmap = 0
        self._turn = 0
        self._middle = 0  # where the latest middle SACK began above cack + 1

    def accept(self, psn: int) -> bool:
        """Note an arrival. False when it had arrived before."""
        offset = psn - self.cack - 1
        if offset < 0:
            return False
        bit = 1 << offset
        bitmap = self.bitmap
        if bitmap & bit:
            return False
        if offset:
            self.bitmap = bitmap | bit
            return True
        bitmap |= 1
        run = (~bitmap & (bitmap + 1)).bit_length() - 1  # trailing ones
        self.cack += run
        self.bitmap = bitmap >> run
        return True

    @property
    def out_of_order(self) -> int:
        """Packets that have arrived above a hole."""
        return self.bitmap.bit_count()

    def sack(self) -> tuple[int, int]:
        """(offset, bits): bit i stands for PSN cack + offset + i.

        Where the arrivals above the hole span more than 64 PSNs, the newest 64, the oldest 64 and the next 64 of those
        between take turns: a requester learns of every hole, or what is lost there would fill its window for ever.
        """
        span = self.bitmap.bit_length()
        if span <= SACK_BITS:
            return 1, self.bitmap
        shift = self._next_shift(span - SACK_BITS)
        return 1 + shift, self.bitmap >> shift & _SACK_MASK

    def sacks(self) -> list[tuple[int, int]]:
        """All there is to say, 64 PSNs at a time, the oldest first."""
        bitmap = self.bitmap
        shifts = range(0, bitmap.bit_length() + 1, SACK_BITS)  # and the hole behind the newest
        return [(1 + shift, bitmap >> shift & _SACK_MASK) for shift in shifts]

    def _next_shift(self, newest: int) -> int:
        """Each round begins one kind later than the one before, or each kind would keep to one of as many planes."""
        kinds = 3 if newest > SACK_BITS else 2
        turn, self._turn = self._turn, self._turn + 1
        kind = (turn + turn // kinds) % kinds
        if kind == 0:
            return newest
        if kind == 1:
            return 0
        self._middle += SACK_BITS
        if self._middle >= newest:
            self._middle = SACK_BITS
        return self._middle
