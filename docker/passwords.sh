#!/bin/sh
# Prints new random values for every password and key that docker-compose.yaml asks for: docker/passwords.sh >> .env
set -eu
# The shell made the file, perhaps readable for every user of the machine.
if [ -f /dev/stdout ]; then chmod go= /dev/stdout; fi
random() { head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n'; }
for name in POSTGRES_PASSWORD AIRFLOW_DATABASE_PASSWORD CATALOG_DATABASE_PASSWORD SYNAPSE_DATABASE_PASSWORD \
    READER_DATABASE_PASSWORD AIRFLOW_ADMIN_PASSWORD AIRFLOW_API_SECRET_KEY AIRFLOW_JWT_SECRET \
    GRAFANA_ADMIN_PASSWORD; do
    echo "$name=$(random)"
done
# Fernet wants 32 bytes in URL-safe base64.
echo "AIRFLOW_FERNET_KEY=$(head -c 32 /dev/urandom | base64 | tr '+/' '-_')"
