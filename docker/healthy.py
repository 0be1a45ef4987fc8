"""Health check of a container: fail unless the URL responds and Airflow reports COMPONENT, if given, as healthy.

Usage: healthy.py URL [COMPONENT]
"""

import json
import sys
from urllib.request import ProxyHandler, build_opener

url, *components = sys.argv[1:]
with build_opener(ProxyHandler({})).open(url, timeout=5) as response:
    report = json.load(response) if components else {}
sys.exit(any(report[component]["status"] != "healthy" for component in components))
