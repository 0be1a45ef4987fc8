"""Health check of a container: the URL answers and, of Airflow's own health report, the named component is healthy.

Usage: healthy.py URL [COMPONENT]
"""

import json
import sys
from urllib.request import urlopen

url, *components = sys.argv[1:]
with urlopen(url, timeout=5) as answer:  # noqa: S310 - the compose file says which
    report = json.load(answer) if components else {}
sys.exit(any(report[component]["status"] != "healthy" for component in components))
