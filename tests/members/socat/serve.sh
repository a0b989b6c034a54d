#!/bin/sh
# serve.sh PORT: a member made of socat and sed, one handle.sh for each connection. Exit 2 when the
# port is taken, which socat itself reports as exit 1 with a message (kept in socat.log in the cwd).
handler=$(dirname "$0")/handle.sh
export handler
rm -f socat.log
socat -lf socat.log "TCP-LISTEN:$1,bind=127.0.0.1,reuseaddr,fork" 'SYSTEM:sh \"$handler\"' &
listener=$!
trap 'kill $listener 2>/dev/null; wait $listener; exit 0' TERM INT
wait $listener
code=$?
cat socat.log >&2
if grep -q 'Address already in use' socat.log; then exit 2; fi
exit $code
