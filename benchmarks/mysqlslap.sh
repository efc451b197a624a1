#!/bin/sh
# How long one write of the database takes, by mysqlslap with the original's own command line, and what to expect of it.
#
#   WA_DB_USERNAME=… WA_DB_PASSWORD=… WA_DB_HOSTNAME=… WA_DB_PORT=… benchmarks/mysqlslap.sh
#
# Without these, the database of TIDINGS_BUSINESS_DB_URL. MYSQLSLAP names the program if it is not on the PATH. Run it
# on the machine of the Coreapp. It makes a schema of its own, mysqlslap, and drops it.
set -eu

here=$(dirname "$0")/..
if [ -z "${WA_DB_HOSTNAME:-}" ]; then
    eval "$("$here/.venv/bin/python" - <<'PYTHON'
import os, shlex, sys
from sqlalchemy import make_url
given = os.environ.get("TIDINGS_BUSINESS_DB_URL", "")
url = make_url(given) if given else None
if url is None or not url.drivername.startswith("mysql"):
    sys.exit("mysqlslap.sh: set WA_DB_HOSTNAME and the others, or TIDINGS_BUSINESS_DB_URL to a database of MySQL")
found = {"USERNAME": url.username or "root", "PASSWORD": url.password or "", "HOSTNAME": url.host or "127.0.0.1"}
for name, value in {**found, "PORT": str(url.port or 3306)}.items():
    print(f"WA_DB_{name}={shlex.quote(value)}")
PYTHON
    )"
fi
program=${MYSQLSLAP:-$(command -v mysqlslap || command -v mariadb-slap || true)}
[ -n "$program" ] || { echo "mysqlslap.sh: mysqlslap is missing: install mariadb-client" >&2; exit 1; }

# An empty password would make it ask for one.
said=$("$program" -u"$WA_DB_USERNAME" ${WA_DB_PASSWORD:+"-p$WA_DB_PASSWORD"} -h "$WA_DB_HOSTNAME" -P "${WA_DB_PORT:-3306}" \
    --auto-generate-sql --concurrency=5 --number-int-cols=5 --auto-generate-sql-load-type=write \
    --auto-generate-sql-secondary-indexes=2 --auto-generate-sql-execute-number=1000 --engine=innodb --commit=1 \
    --auto-generate-sql-add-autoincrement --auto-generate-sql-unique-write-number=200 --verbose)
echo "$said"

# 1,000 writes of each client, one after the other.
seconds=$(echo "$said" | sed -n 's/.*Average number of seconds to run all queries: \([0-9.]*\) seconds.*/\1/p')
[ -n "$seconds" ] || { echo "mysqlslap.sh: no reading in what mysqlslap said" >&2; exit 1; }
awk -v seconds="$seconds" 'BEGIN {
    ms = seconds
    printf "%.3f ms a write\n", ms
    print "The original: about 5 ms are recommended (its 70 messages/s, or 20 sustained); at about 15 ms it had 12 to 15."
    printf "Tidings: a client that makes a contacts call and sends, one after the other, waits for two writes: at most "
    printf "%.0f messages/s for each, %.0f for four.\n", 1000 / (2 * ms), 4000 / (2 * ms)
    print "Clients at the same time share their commits: with 64 and more, the processor is the limit and not the write."
}'
