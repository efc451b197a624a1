#!/bin/sh
# Start-up steps of the official MariaDB and MySQL images that the compose files use: create a database in an empty
# directory, set root's password from MYSQL_ROOT_PASSWORD_FILE, and run /docker-entrypoint-initdb.d/*.sql.
set -eu
case "${1:-}" in mariadbd | mysqld) shift ;; esac
install -d -o mysql -g mysql /run/mysqld
as_mysql() { setpriv --reuid=mysql --regid=mysql --clear-groups "$@"; }
if [ ! -d /var/lib/mysql/mysql ]; then
    password=$(cat "$MYSQL_ROOT_PASSWORD_FILE")
    as_mysql mariadb-install-db --datadir=/var/lib/mysql --auth-root-authentication-method=normal --skip-test-db >/dev/null
    as_mysql mariadbd --datadir=/var/lib/mysql --socket=/run/mysqld/start.sock --skip-networking &
    server=$!
    until mariadb-admin --socket=/run/mysqld/start.sock ping >/dev/null 2>&1; do kill -0 "$server"; sleep 0.2; done
    for file in /docker-entrypoint-initdb.d/*.sql; do
        as_mysql cat "$file" | mariadb --socket=/run/mysqld/start.sock --user=root
    done
    mariadb --socket=/run/mysqld/start.sock --user=root --execute="ALTER USER root@localhost IDENTIFIED BY '$password'"
    mariadb-admin --socket=/run/mysqld/start.sock --user=root --password="$password" shutdown
    wait "$server"
fi
exec setpriv --reuid=mysql --regid=mysql --clear-groups mariadbd --datadir=/var/lib/mysql --bind-address=0.0.0.0 "$@"
