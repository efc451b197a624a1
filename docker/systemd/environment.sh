#!/bin/sh
# Creates the files of variables that the units read, with random secrets, and users.sql for the database administrator.
#
#   docker/systemd/environment.sh [DIRECTORY]
#
# DIRECTORY is /etc/tidings by default. The variable TIDINGS is the path of the program, by default
# /opt/tidings/bin/tidings. If one of the files exists, nothing is created. Keep a copy of the files: without the master
# key the database cannot be decrypted.
set -eu
umask 077
directory=${1:-/etc/tidings}
program=${TIDINGS:-/opt/tidings/bin/tidings}
for name in tidings webapp coreapp network migrate robots; do
    if [ -e "$directory/$name.env" ]; then
        echo "$directory/$name.env is there already: nothing was made" >&2
        exit 1
    fi
done
key() { openssl rand -hex 32; }
TIDINGS_BUSINESS_DB_PASSWORD=$(key) TIDINGS_NETWORK_DB_PASSWORD=$(key) TIDINGS_MIGRATE_DB_PASSWORD=$(key)
export TIDINGS_BUSINESS_DB_PASSWORD TIDINGS_NETWORK_DB_PASSWORD TIDINGS_MIGRATE_DB_PASSWORD
link_key=$(key) settings_key=$(key) registration_key=$(key) api_key=$(key)
mkdir -p "$directory"
# The server is on this machine, so connections need no TLS. For a server on another machine, remove both options and
# set WA_DB_SSL_CA.
"$program" database sql --host=127.0.0.1 --without-tls >"$directory/users.sql"

cat >"$directory/tidings.env" <<END
TIDINGS_BUSINESS_NUMBER=15550000000
TIDINGS_NETWORK_BUSINESS_NUMBERS=15550000000
WA_DB_ENGINE=MYSQL
WA_DB_HOSTNAME=127.0.0.1
WA_API_KEY=$api_key
END
cat >"$directory/webapp.env" <<END
WA_DB_USERNAME=tidings_business
WA_DB_PASSWORD=$TIDINGS_BUSINESS_DB_PASSWORD
WA_WEB_JWT_CRYPTO_KEY=$(key)
TIDINGS_LINK_KEY=$link_key
TIDINGS_SETTINGS_KEY=$settings_key
TIDINGS_ADMIN_PASSWORD=$(openssl rand -hex 16)-Aa1
END
cat >"$directory/coreapp.env" <<END
WA_DB_USERNAME=tidings_business
WA_DB_PASSWORD=$TIDINGS_BUSINESS_DB_PASSWORD
TIDINGS_LINK_KEY=$link_key
TIDINGS_SETTINGS_KEY=$settings_key
TIDINGS_MASTER_KEY=$(key)
TIDINGS_REGISTRATION_KEY=$registration_key
TIDINGS_WEBHOOK_SECRET=whsec_$(openssl rand -base64 32)
END
cat >"$directory/network.env" <<END
WA_DB_USERNAME=tidings_network
WA_DB_PASSWORD=$TIDINGS_NETWORK_DB_PASSWORD
TIDINGS_REGISTRATION_KEY=$registration_key
TIDINGS_OPERATOR_KEY=$(key)
END
cat >"$directory/migrate.env" <<END
WA_DB_USERNAME=tidings_migrate
WA_DB_PASSWORD=$TIDINGS_MIGRATE_DB_PASSWORD
END
# Simulated recipients for trying the installation.
cat >"$directory/robots.env" <<END
TIDINGS_EMBEDDED=1
TIDINGS_REGISTRATION_KEY=$registration_key
TIDINGS_HANDSET_KEY=$(key)
END
echo "made $directory/*.env and $directory/users.sql"
