#!/bin/sh
# Prints a secret with random values: docker/kubernetes/secrets.sh | kubectl --namespace tidings create -f -
# Passwords of database users that are set (BUSINESS_DATABASE_PASSWORD …) are used, the others are random.
# Keep a copy of the secret: without the master key the database cannot be decrypted.
set -eu
key() { openssl rand -hex 32; }
: "${BUSINESS_DATABASE_PASSWORD:=$(key)}" "${NETWORK_DATABASE_PASSWORD:=$(key)}" "${MIGRATE_DATABASE_PASSWORD:=$(key)}"
: "${REDIS_PASSWORD:=}"
# Quotes a YAML scalar: inside it only ' is special, and is doubled. A value must not contain a line break.
quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/'/''/g")"; }
cat <<SECRET
apiVersion: v1
kind: Secret
metadata:
  name: tidings
type: Opaque
stringData:
  business-database-password: $(quoted "$BUSINESS_DATABASE_PASSWORD")
  network-database-password: $(quoted "$NETWORK_DATABASE_PASSWORD")
  migrate-database-password: $(quoted "$MIGRATE_DATABASE_PASSWORD")
  redis-password: $(quoted "$REDIS_PASSWORD")
  authority-seed: "$(key)"
  jwt-key: "$(key)"
  link-key: "$(key)"
  settings-key: "$(key)"
  master-key: "$(key)"
  registration-key: "$(key)"
  webhook-secret: "whsec_$(openssl rand -base64 32)"
  api-key: "$(key)"
  operator-key: "$(key)"
  admin-password: "$(openssl rand -hex 16)-Aa1"
SECRET
