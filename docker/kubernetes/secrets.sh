#!/bin/sh
# Prints a secret with new random values: docker/kubernetes/secrets.sh | kubectl --namespace tidings create -f -
# Keep a copy of it: without the master key the data in the database cannot be decrypted.
set -eu
: "${DATABASE_PASSWORD:?the password of WA_DB_USERNAME}" "${REDIS_PASSWORD:=}"
key() { openssl rand -hex 32; }
# Single-quoted YAML string: only ' is escaped, by doubling it. The value must not contain a line break.
quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/'/''/g")"; }
cat <<SECRET
apiVersion: v1
kind: Secret
metadata:
  name: tidings
type: Opaque
stringData:
  database-password: $(quoted "$DATABASE_PASSWORD")
  redis-password: $(quoted "$REDIS_PASSWORD")
  jwt-key: "$(key)"
  link-key: "$(key)"
  settings-key: "$(key)"
  master-key: "$(key)"
  registration-key: "$(key)"
  webhook-secret: "whsec_$(openssl rand -base64 32)"
  api-key: "$(key)"
  operator-key: "$(key)"
  admin-password: "$(key)"
SECRET
