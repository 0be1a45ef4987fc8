#!/bin/sh
# Runs before Airflow's services and after every upgrade; running it again changes nothing.
set -eu
umask 077
airflow db migrate
# A number of slots that the operator changed stays.
airflow pools get spark_drivers >/dev/null 2>&1 || \
    airflow pools set spark_drivers 3 "Spark apps, each with the memory of a driver; opening a run and copying take two slots"
python -c 'import json, os; print(json.dumps({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}))' \
    > "$AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
python -c 'from synapse_lakehouse.java import jars; from synapse_lakehouse.config.settings import Settings; jars.install_jars(Settings())'
# Spark's master, workers and drivers share a secret.
[ -s "$LAKEHOUSE_SPARK_SECRET_FILE" ] || /app/docker/spark-secret.sh > "$LAKEHOUSE_SPARK_SECRET_FILE"
