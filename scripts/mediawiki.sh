#!/usr/bin/env bash
# A real MediaWiki on loopback, for tests: PHP's own web server and SQLite, from Debian's packages.
#
#   scripts/mediawiki.sh install FOLDER DUMP.xml     into a new FOLDER, with the pages of the dump (root, Debian)
#   scripts/mediawiki.sh serve FOLDER PORT           http://127.0.0.1:PORT/w/api.php, until the process group is killed
#
# A file FOLDER/busy makes it answer 429, and FOLDER/lag that its copies lag.
set -euo pipefail

fail() { echo "error: $*" >&2; exit 1; }

install_wiki() {
    local folder=$1 dump=$2
    [ "$(id -u)" = 0 ] || fail "installing packages needs root"
    command -v apt-get > /dev/null || fail "the packages are Debian's: apt-get is missing"
    [ ! -e "$folder" ] || fail "$folder is there already"
    [ -f "$dump" ] || fail "there is no file $dump"
    dump=$(realpath "$dump")
    export DEBIAN_FRONTEND=noninteractive
    local needed=(php-cli php-sqlite3 php-intl php-mbstring php-xml)
    if ! dpkg --status "${needed[@]}" > /dev/null 2>&1; then
        apt-get update -qq
        apt-get install --yes -qq --no-install-recommends "${needed[@]}" > /dev/null
    fi
    mkdir -p "$folder/packages" "$folder/data" "$folder/www"
    folder=$(realpath "$folder")
    # The package itself would bring a web server and a database: only its files are wanted.
    cd "$folder/packages"
    apt-get download -qq mediawiki mediawiki-classes 2> /dev/null || { apt-get update -qq; apt-get download -qq mediawiki mediawiki-classes; }
    for package in *.deb; do dpkg-deb --extract "$package" files; done
    mv files/usr/share/mediawiki "$folder/www/w"
    cd "$folder/www/w"
    rm -rf "$folder/packages"
    rm -f extensions config images LocalSettings.php  # links to places that were not unpacked
    mv extensions-core extensions
    mkdir images
    php maintenance/install.php --dbtype sqlite --dbname wiki --dbpath "$folder/data" --scriptpath /w --lang en \
        --server http://127.0.0.1 --pass "$(head -c 18 /dev/urandom | base64)" Loopback Admin > /dev/null
    cat >> LocalSettings.php << 'PHP'
$wgServer = 'http://127.0.0.1:' . ( getenv( 'MEDIAWIKI_PORT' ) ?: '80' );
$wgJobRunRate = 0;
$wgMainCacheType = CACHE_NONE;
$wgParserCacheType = CACHE_DB;
// As a busy wiki answers, while there is a file of that name.
if ( is_file( __DIR__ . '/../../busy' ) ) {
	header( 'Retry-After: 1', true, 429 );
	exit;
}
$wgHooks['ApiMaxLagInfo'][] = static function ( &$info ) {
	$info['lag'] = is_file( __DIR__ . '/../../lag' ) ? 10 : 0;
};
PHP
    php maintenance/importDump.php "$dump" > "$folder/import.log" 2>&1 || { cat "$folder/import.log" >&2; exit 1; }
    php maintenance/runJobs.php > /dev/null  # the tables of links
    php maintenance/rebuildtextindex.php > /dev/null
}

serve() {
    # Two workers, so that one request that hangs does not stop the others.
    export MEDIAWIKI_PORT=$2 PHP_CLI_SERVER_WORKERS=2
    echo $$ > "$1/server-$2.pid"
    exec php -d opcache.enable_cli=1 -d opcache.validate_timestamps=0 -S "127.0.0.1:$2" -t "$1/www" > "$1/server-$2.log" 2>&1
}

case "${1:-} $#" in
    "install 3") install_wiki "$2" "$3" ;;
    "serve 3") serve "$2" "$3" ;;
    *) sed -n '2,7s/^# \?//p' "$0" >&2; exit 2 ;;
esac
