#!/bin/sh
# Runs once, on an empty volume: a role and a database for each user of this server, then the shipped sample.
set -eu

query() { psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 "$@"; }

owned_database() {
    query --set name="$1" --set password="$2" <<'SQL'
create role :"name" login password :'password';
create database :"name" owner :"name" template template0 encoding 'UTF8' locale 'C';
revoke connect on database :"name" from public;
SQL
}

owned_database airflow "$AIRFLOW_DATABASE_PASSWORD"
owned_database iceberg "$CATALOG_DATABASE_PASSWORD"
owned_database synapse "$SYNAPSE_DATABASE_PASSWORD"

gunzip --stdout /sample/synapse.sql.gz | PGOPTIONS='-c role=synapse' query --single-transaction --dbname synapse >/dev/null

query --dbname synapse --file /reader.sql
query --dbname synapse --set password="$READER_DATABASE_PASSWORD" <<'SQL'
alter role lakehouse_reader password :'password';
SQL
