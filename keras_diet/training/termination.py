"""The signal that asks a process to end."""

import signal
import threading
from typing import Any

from keras_diet._keras_fit import epoch_iterator_of

# The exit status that shells report for a process that SIGTERM ended.
_STATUS = 128 + signal.SIGTERM


class Termination:
    """Remembers SIGTERM while `fit` runs. Another one ends the process as usual.

    Args:
        loop: What `epoch_iterator_of` returned.
    """

    def __init__(self, loop: Any) -> None:
        self.requested = False
        self._loop = loop
        self._previous: Any = None
        # Python allows this in the main thread only.
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number, frame):
        is_running = epoch_iterator_of(frame, "fit") is self._loop
        if is_running and not self.requested:
            self.requested = True
            return
        # An error may have ended `fit` without `on_train_end`.
        self.end()
        signal.raise_signal(number)

    def end(self) -> None:
        """Handle SIGTERM as before."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)

    def exit(self) -> None:
        """Leave the script."""
        self.end()
        raise SystemExit(_STATUS)
