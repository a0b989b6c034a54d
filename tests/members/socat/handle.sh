#!/bin/sh
# One HTTP request on stdin, its answer on stdout. Answers the three requests that a member promises;
# on anything else it ends, which closes the connection.
LC_ALL=C
export LC_ALL
length=0
while IFS= read -r line; do
    line=$(printf %s "$line" | tr -d '\r' | tr '[:upper:]' '[:lower:]')
    case $line in
    content-length:*) length=$(printf %s "${line#*:}" | tr -d ' ') ;;
    '') break ;;
    esac
done
body=$(dd bs=1 count="$length" 2>/dev/null | tr -d '\r\n')

member() { # the raw value of the member $1
    printf '%s\n' "$body" | sed -n 's/.*"'"$1"'" *: *\("\([^"\\]\|\\.\)*"\|[^],} ]*\).*/\1/p'
}

# Upper case, except for the letter of an escape such as \n (an escaped backslash is set aside meanwhile).
upper() {
    aside=$(printf '\001')
    sed "s/\\\\\\\\/$aside/g" | tr '[:lower:]' '[:upper:]' |
        sed 's/\\N/\\n/g; s/\\T/\\t/g; s/\\R/\\r/g; s/\\B/\\b/g; s/\\F/\\f/g; s/\\U/\\u/g' | sed "s/$aside/\\\\\\\\/g"
}

case $(member method) in
'"initialize"')
    result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"socat","version":"1.0.0"}}' ;;
'"tools/list"')
    result='{"tools":[{"name":"upper","description":"Returns the text in capitals","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}]}' ;;
'"tools/call"')
    result='{"content":[{"type":"text","text":'$(member text | upper)'}]}' ;;
*)
    exit 0 ;;
esac

answer='{"jsonrpc":"2.0","id":'$(member id)',"result":'$result'}'
printf 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' "${#answer}" "$answer"
