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
"""Time in seconds that one report spends on one sink."""


@dataclass(frozen=True)
class AlertSink:
    """A sink. ``name`` replaces the address in logs and tables, because an address contains a password or token."""

    name: str
    address: str = field(repr=False)

    def take(self, message: AlertMessage, seconds: float) -> bool:
        """Send ``message``; whether the sink accepted it. Failures are logged and never raised.

        :param seconds: time to wait: a sink may block its senders, or send an endless answer.
        """
        arrived: list[bool] = []
        sending = Thread(target=lambda: arrived.append(self._send(message)), daemon=True)
        sending.start()
        sending.join(seconds)
        if sending.is_alive():
            log.warning(
                "alert sink %s did not say within %.0f s that it took the news: the next report tries again",
                self.name,
                seconds,
            )
        return any(arrived)

    def _send(self, message: AlertMessage) -> bool:
        import apprise  # takes half a second, which runs without messages save

        logging.getLogger("apprise").setLevel(logging.CRITICAL)  # its log lines contain addresses and answers
        urgency = apprise.NotifyType.WARNING if message.is_warning else apprise.NotifyType.FAILURE
        sender = apprise.Apprise()
        try:
            if not sender.add(self.address):
                log.warning(
                    "alert sink %s is no address that Apprise understands, so nobody is told there: correct "
                    "LAKEHOUSE_ALERT_URLS (https://appriseit.com/services/)",
                    self.name,
                )
                return False
            arrived = sender.notify(
                title=message.title,
                body=message.body,
                body_format=apprise.NotifyFormat.TEXT,
                notify_type=apprise.NotifyType.SUCCESS if message.is_resolution else urgency,
            )
        except Exception as error:  # noqa: BLE001 - whatever a sink does, the data are not to suffer
            log.warning("alert sink %s failed with %s", self.name, type(error).__name__)
            return False
        if not arrived:
            log.warning("alert sink %s did not take the news: the next report tries again", self.name)
        return bool(arrived)


def load_sinks(settings: Settings) -> Iterator[AlertSink]:
    """The configured sinks, each named by its kind and a hash of its address."""
    for address in settings.lakehouse_alert_urls.split():
        kind = address.partition("://")[0] if "://" in address else "unknown"
        yield AlertSink(f"{kind} {hashlib.sha256(address.encode()).hexdigest()[:8]}", address)
