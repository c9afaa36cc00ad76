# --version prints one line and exits with 0.
"$dtplan" --version | sed 's/[0-9][0-9.]*/VERSION/'
