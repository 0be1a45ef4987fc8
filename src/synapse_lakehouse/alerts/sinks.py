"""Sinks of alert messages: the addresses of LAKEHOUSE_ALERT_URLS, through Apprise."""

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Thread
from typing import Final

from synapse_lakehouse.alerts.message import AlertMessage
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)

MAX_SECONDS: Final = 60.0
"""Maximum seconds that one report spends on one sink."""


@dataclass(frozen=True)
class AlertSink:
    """A sink. ``name`` replaces the address in logs and tables, because the address contains a password or token."""

    name: str
    address: str = field(repr=False)

    def send(self, message: AlertMessage, seconds: float) -> bool:
        """Send ``message``; return whether the sink accepted it. Failures are logged and never raised.

        :param seconds: maximum time to wait, because a sink may block its senders, or send an endless answer.
        """
        accepted: list[bool] = []
        sending = Thread(target=lambda: accepted.append(self._send(message)), daemon=True)
        sending.start()
        sending.join(seconds)
        if sending.is_alive():
            log.warning(
                "alert sink %s did not confirm the message within %.0f s, so the next report sends it again",
                self.name,
                seconds,
            )
        return any(accepted)

    def _send(self, message: AlertMessage) -> bool:
        import apprise  # takes half a second, and runs without messages do not need it

        logging.getLogger("apprise").setLevel(logging.CRITICAL)  # its log lines contain addresses and answers
        urgency = apprise.NotifyType.WARNING if message.is_warning else apprise.NotifyType.FAILURE
        sender = apprise.Apprise()
        try:
            if not sender.add(self.address):
                log.warning(
                    "alert sink %s is not a valid Apprise address, so it receives no messages; correct "
                    "LAKEHOUSE_ALERT_URLS (https://appriseit.com/services/)",
                    self.name,
                )
                return False
            accepted = sender.notify(
                title=message.title,
                body=message.body,
                body_format=apprise.NotifyFormat.TEXT,
                notify_type=apprise.NotifyType.SUCCESS if message.is_resolution else urgency,
            )
        except Exception as error:  # noqa: BLE001 - a fault of a sink must not fail the run
            log.warning(
                "alert sink %s failed with %s, so the next report sends the message again",
                self.name,
                type(error).__name__,
            )
            return False
        if not accepted:
            log.warning("alert sink %s did not accept the message, so the next report sends it again", self.name)
        return bool(accepted)


def load_sinks(settings: Settings) -> Iterator[AlertSink]:
    """Yield the configured sinks, each named by its kind and a hash of its address."""
    for address in settings.lakehouse_alert_urls.split():
        kind = address.partition("://")[0] if "://" in address else "unknown"
        yield AlertSink(f"{kind} {hashlib.sha256(address.encode()).hexdigest()[:8]}", address)
