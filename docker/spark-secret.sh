#!/bin/sh
# Prints Spark properties with a new secret, for masters and workers (`--properties-file`) and for
# LAKEHOUSE_SPARK_SECRET_FILE: (umask 077; docker/spark-secret.sh > spark.secret)
set -eu
cat <<END
spark.authenticate true
spark.authenticate.secret $(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
spark.network.crypto.enabled true
spark.network.crypto.saslFallback false
spark.ui.killEnabled false
spark.master.rest.enabled false
END
