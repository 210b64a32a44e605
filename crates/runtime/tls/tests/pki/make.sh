#!/bin/sh
# Makes the certificates of the tests anew, valid for a century: a CA, certificates of it, and another CA that nobody knows.
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256; }
authority() { # FILE NAME
    key >"$work/$1.key"
    openssl req -x509 -key "$work/$1.key" -out "$1-cert.pem" -days 36500 -subj "/CN=$2" -addext keyUsage=critical,keyCertSign
}
certificate() { # FILE SUBJECT NAMES USAGE FIRST LAST
    key >"$1-key.pem"
    openssl req -new -key "$1-key.pem" -out "$work/request" -subj "$2"
    printf 'basicConstraints=CA:FALSE\nsubjectAltName=%s\nextendedKeyUsage=%s\n' "$3" "$4" >"$work/extensions"
    printf '[ca]\ndefault_ca=c\n[c]\ndatabase=%s\nserial=%s\nnew_certs_dir=%s\npolicy=p\ndefault_md=sha256\n[p]\ncommonName=supplied\n' \
        "$work/index" "$work/serial" "$work" >"$work/config"
    : >"$work/index"
    openssl rand -hex 8 >"$work/serial"
    openssl ca -batch -notext -config "$work/config" -cert ca-cert.pem -keyfile "$work/ca.key" -in "$work/request" \
        -extfile "$work/extensions" -startdate "$5" -enddate "$6" -out "$1-cert.pem"
}
authority ca 'tests of linerate'
authority stranger 'a CA that nobody knows'
always='20260101000000Z 21251231000000Z'
# shellcheck disable=SC2086
{
    certificate server /CN=server DNS:localhost,IP:127.0.0.1 serverAuth $always
    certificate elsewhere /CN=elsewhere DNS:elsewhere.example serverAuth $always
    certificate client /CN=host1 DNS:host1.example clientAuth $always
    certificate expired /CN=expired DNS:localhost,IP:127.0.0.1 serverAuth,clientAuth 20200101000000Z 20200102000000Z
}
# Without extensions, openssl makes a certificate of version 1.
key >"$work/version1.key"
openssl req -new -key "$work/version1.key" -out "$work/request" -subj /CN=version1
openssl x509 -req -in "$work/request" -CA ca-cert.pem -CAkey "$work/ca.key" -days 36500 -out version1-cert.pem
