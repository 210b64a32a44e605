#!/bin/sh
# Makes the certificate of the self-test anew, and the CA that it is believed by, whose key is thrown away. Valid for a century.
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256; }
key >"$work/ca.key"
openssl req -x509 -key "$work/ca.key" -out ca-cert.pem -days 36500 -subj '/CN=self-test of linerate' -addext keyUsage=critical,keyCertSign
key >server-key.pem
openssl req -new -key server-key.pem -out "$work/request" -subj /CN=selftest
printf 'basicConstraints=CA:FALSE\nsubjectAltName=DNS:selftest.invalid\nextendedKeyUsage=serverAuth\n' >"$work/extensions"
printf '[ca]\ndefault_ca=c\n[c]\ndatabase=%s\nserial=%s\nnew_certs_dir=%s\npolicy=p\ndefault_md=sha256\n[p]\ncommonName=supplied\n' \
    "$work/index" "$work/serial" "$work" >"$work/config"
: >"$work/index"
openssl rand -hex 8 >"$work/serial"
openssl ca -batch -notext -config "$work/config" -cert ca-cert.pem -keyfile "$work/ca.key" -in "$work/request" \
    -extfile "$work/extensions" -startdate 20260101000000Z -enddate 21251231000000Z -out server-cert.pem
