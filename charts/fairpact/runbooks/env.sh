# Sets the variables of the runbooks from the running release, in bash: source charts/fairpact/runbooks/env.sh
# For another release, first replace the names in it as operations.md says. It prints no secret.
url() { # a URL in the environment of a deployment, from the Secret that the deployment names
  local ref=".spec.template.spec.containers[0].env[?(@.name==\"$2\")].valueFrom.secretKeyRef" secret key
  secret=$(kubectl -n fairpact get deployment "$1" -o jsonpath="{$ref.name}") && key=$(kubectl -n fairpact get deployment "$1" -o jsonpath="{$ref.key}") &&
    kubectl -n fairpact get secret "$secret" -o go-template="{{index .data \"$key\"}}" | base64 -d
}
CHART=$(kubectl -n fairpact get deployment fairpact-deal-api -o jsonpath='{.metadata.labels.helm\.sh/chart}' | sed -n 's/^fairpact-\(.\)/\1/p')
CHART=${CHART:+oci://ghcr.io/fairpact/charts/fairpact --version $CHART}
export PGCONNECT_TIMEOUT=5
DATABASE_URL=$(url fairpact-deal-api DATABASE_URL)
LOG_DATABASE_URL=$(url fairpact-log-server DATABASE_URL) # the same, unless the log has a separate database
FAIRPACT_LOG_DATABASE_URL=$LOG_DATABASE_URL              # for fairpactctl
FAIRPACT_URL=$(helm get notes fairpact -n fairpact | sed -n 's/^It answers at //p')
REDIS=$(url fairpact-deal-api REDIS_URL)
REDIS=${REDIS/:\/\/:/:\/\/default:}                      # redis-cli needs a user name; a Sentinel's URL leads to the Sentinel
export DATABASE_URL LOG_DATABASE_URL FAIRPACT_LOG_DATABASE_URL FAIRPACT_URL REDIS
for name in CHART DATABASE_URL LOG_DATABASE_URL FAIRPACT_URL REDIS; do
  [[ -n ${!name} ]] || echo "$name is empty: set it by hand" >&2
done
[[ $FAIRPACT_URL != *'*'* ]] || echo "FAIRPACT_URL is $FAIRPACT_URL: set it to where callers reach you" >&2
