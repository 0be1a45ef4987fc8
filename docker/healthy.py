"""Health check of a container: the URL answers and, of Airflow's own health report, the named component is healthy.

Usage: healthy.py URL [COMPONENT]
"""

import json
import sys
from urllib.request import ProxyHandler, build_opener

url, *components = sys.argv[1:]
with build_opener(ProxyHandler({})).open(url, timeout=5) as answer:
    report = json.load(answer) if components else {}
sys.exit(any(report[component]["status"] != "healthy" for component in components))
