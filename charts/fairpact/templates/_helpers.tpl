{{- define "fairpact.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "fairpact.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "fairpact.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "fairpact.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* Selector labels of a component. Argument: (list $ "deal-api"). */}}
{{- define "fairpact.selector" -}}
app.kubernetes.io/name: {{ include "fairpact.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* All labels of a component. Argument: (list $ "deal-api"). */}}
{{- define "fairpact.labels" -}}
{{- $root := index . 0 -}}
{{ include "fairpact.selector" . }}
app.kubernetes.io/version: {{ $root.Values.image.tag | default $root.Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/part-of: fairpact
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Annotations of an object: commonAnnotations and the given maps. A later map overrides an earlier one. Argument: (list $ $map …). */}}
{{- define "fairpact.annotations" -}}
{{- $all := dict -}}
{{- range prepend (rest .) (index . 0).Values.commonAnnotations }}{{ $all = merge (dict) (. | default dict) $all }}{{ end }}
{{- with $all -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Values of a component, as JSON. Argument: (list $ "deal-api"). */}}
{{- define "fairpact.values" -}}
{{- $of := dict "deal-api" "dealApi" "log-server" "logServer" "deadline-worker" "deadlineWorker" "migration" "migration" -}}
{{- get (index . 0).Values (get $of (index . 1)) | toJson -}}
{{- end }}

{{- define "fairpact.serviceAccountName" -}}
{{- $sa := (include "fairpact.values" . | fromJson).serviceAccount -}}
{{- if $sa.create -}}
{{- $sa.name | default (printf "%s-%s" (include "fairpact.fullname" (index . 0)) (index . 1)) -}}
{{- else -}}
{{- $sa.name | default "default" -}}
{{- end -}}
{{- end }}

{{/* Image of a component. Argument: (list $ "deal-api"). */}}
{{- define "fairpact.image" -}}
{{- $root := index . 0 -}}
{{- $own := (include "fairpact.values" . | fromJson).image -}}
{{- $repository := $own.repository -}}
{{- if not $repository -}}
{{- $registry := required "image.registry is required: set registry and path of the images, such as registry.example.com/fairpact" $root.Values.image.registry -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" $registry) (index . 1) -}}
{{- end -}}
{{- if $own.digest -}}
{{- printf "%s@%s" $repository $own.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (required "image.tag is required: set the version to run, not latest" (regexReplaceAll "^latest$" ($own.tag | default $root.Values.image.tag) "")) -}}
{{- end -}}
{{- end }}

{{/* Fails if dev.enabled is set together with a production value: a trial generates its secrets and keys, so one of the two settings is a mistake. */}}
{{- define "fairpact.trial" -}}
{{- if .Values.dev.enabled -}}
{{- $s := .Values.signing -}}
{{- range $part, $of := .Values.secrets }}{{ if $of.existingSecret }}{{ fail (printf "dev.enabled is for trials, and secrets.%s.existingSecret is set: a trial generates its secrets. Remove one of the two settings" $part) }}{{ end }}{{ end -}}
{{- if or $s.uri $s.keySet $s.publicKey $s.existingSecret.name }}{{ fail "dev.enabled is for trials, and signing names a key: remove one of the two settings" }}{{ end -}}
{{- with .Values.forkGuard }}{{ if or .existingConfigMap .database.existingSecret }}{{ fail "dev.enabled is for trials, which have no fork guard, and forkGuard.existingConfigMap or forkGuard.database is set: remove one of the two settings" }}{{ end }}{{ end -}}
{{- end -}}
{{- end }}

{{/* Name of the Secret in a row of .Values.secrets. Argument: (list $ "database"). */}}
{{- define "fairpact.secretName" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $given := (get $root.Values.secrets $part).existingSecret -}}
{{- if and (not $given) $root.Values.dev.enabled -}}
{{- include "fairpact.fullname" $root }}-dev-{{ $part }}
{{- else -}}
{{- required (printf "secrets.%s.existingSecret is required: make the Secret and set its name (README.md, For real)" $part) $given -}}
{{- end -}}
{{- end }}

{{/* Key of the Secret in a row of .Values.secrets. Argument: (list $ "database"). */}}
{{- define "fairpact.secretKey" -}}
{{- (get (index . 0).Values.secrets (index . 1)).key -}}
{{- end }}

{{/* Name of the Secret with private keys; empty if a KMS signs. */}}
{{- define "fairpact.signingSecret" -}}
{{- $s := .Values.signing -}}
{{- if and $s.keySet (or $s.uri $s.publicKey) -}}
{{- fail "signing.keySet replaces signing.uri and signing.publicKey: leave those empty" -}}
{{- else if and $s.uri $s.existingSecret.name -}}
{{- fail "signing.uri and signing.existingSecret.name are both set: keep the one with the key" -}}
{{- else if $s.existingSecret.name -}}
{{- $s.existingSecret.name -}}
{{- else if or $s.uri $s.keySet -}}
{{- else if .Values.dev.enabled -}}
{{- include "fairpact.fullname" . }}-dev-signing
{{- else -}}
{{- fail "the deployment has no signing key: set signing.uri (gcpkms://…, awskms:///…), signing.keySet or signing.existingSecret.name" -}}
{{- end -}}
{{- end }}

{{/* Name of the log in checkpoints; empty if the log publishes none. The default name of a trial's log ends with .invalid. */}}
{{- define "fairpact.logOrigin" -}}
{{- .Values.log.origin | default (ternary (printf "%s.%s.invalid" (include "fairpact.fullname" .) .Release.Namespace) "" .Values.dev.enabled) -}}
{{- end }}

{{/* Name of the Secret with the log key; empty if a KMS holds the key. */}}
{{- define "fairpact.logKeySecret" -}}
{{- if .Values.log.key.existingSecret -}}
{{- .Values.log.key.existingSecret -}}
{{- else if and .Values.dev.enabled (not .Values.log.key.uri) -}}
{{- include "fairpact.fullname" . }}-dev-log
{{- end -}}
{{- end }}

{{/* "yes" if the log publishes checkpoints, else empty. */}}
{{- define "fairpact.checkpoints" -}}
{{- $l := .Values.log -}}
{{- $origin := include "fairpact.logOrigin" . -}}
{{- $key := or $l.key.uri (include "fairpact.logKeySecret" .) -}}
{{- if and (not $origin) (or $key $l.retiredKeys $l.witnessPolicy) -}}
{{- fail "log.origin is empty: set the public URL without scheme, such as fairpact.example.com, or leave all values of log empty" -}}
{{- else if and $origin (not $key) -}}
{{- fail "log.key.uri or log.key.existingSecret is required with log.origin: make the key in a KMS, or with fairpactctl log key, and put it into a Secret" -}}
{{- else if and $l.key.uri $l.key.existingSecret -}}
{{- fail "log.key has a uri and an existingSecret, but the log has one key: set one of them" -}}
{{- else if $origin -}}
yes
{{- end -}}
{{- end }}

{{/* How migrations run: hook, startup or manual; none in read-only maintenance. */}}
{{- define "fairpact.migrationMode" -}}
{{- if .Values.maintenance.readOnly }}none{{ else if .Values.dev.enabled }}startup{{ else }}{{ .Values.migration.mode }}{{ end -}}
{{- end }}

{{/* Maximum number of connections to Postgres during a rollout of all three workloads: the sum and its terms. During a rollout each workload has replicas (or maxReplicas) plus maxSurge pods. */}}
{{- define "fairpact.connections" -}}
{{- $sum := 0 }}{{ $terms := list }}
{{- range $c := list "deal-api" "log-server" "deadline-worker" }}
{{- $v := include "fairpact.values" (list $ $c) | fromJson }}
{{- $pods := dig "autoscaling" "enabled" false $v | ternary (dig "autoscaling" "maxReplicas" 0 $v) $v.replicas | int }}
{{- $pods = add $pods $v.rollingUpdate.maxSurge }}
{{- $sum = add $sum (mul $pods $v.databaseConns) }}
{{- $terms = append $terms (printf "%s %d × %d" $c $pods (int $v.databaseConns)) }}
{{- end }}
{{- printf "%d (%s)" $sum (join ", " $terms) }}
{{- end }}

{{/* Name of the fork guard's ConfigMap; empty if there is no fork guard, or if it is in a database. */}}
{{- define "fairpact.guard" -}}
{{- if and .Values.forkGuard.enabled (not .Values.dev.enabled) (not .Values.forkGuard.database.existingSecret) -}}
{{- .Values.forkGuard.existingConfigMap | default (printf "%s-fork-guard" (include "fairpact.fullname" .)) -}}
{{- end -}}
{{- end }}
