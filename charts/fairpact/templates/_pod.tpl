{{- define "fairpact.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.podUser }}
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
fsGroup: {{ int64 . }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "fairpact.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "fairpact.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Nodes of the migration Job and the test pod: those of deal-api, because they run its image. */}}
{{- define "fairpact.placement" -}}
{{- with .Values.dealApi.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.dealApi.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "fairpact.migrationEnv" -}}
{{- include "fairpact.databaseEnv" (list . "migration") }}
{{- if .Values.secrets.logDatabase.existingSecret }}
- name: FAIRPACT_LOG_DATABASE_URL
  valueFrom:
    secretKeyRef: {name: {{ .Values.secrets.logDatabase.existingSecret }}, key: {{ .Values.secrets.logDatabase.key }}}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A list of variables, as YAML. Fails on a duplicate name, because an upgrade would lose one of the two. Fails on FAIRPACT_DRAIN_DELAY, because the delay could exceed the grace period. */}}
{{- define "fairpact.env" -}}
{{- $seen := dict }}
{{- range . }}
{{- if hasKey $seen .name }}
{{- fail (printf "the variable %s is set twice, by extraEnv and by the chart or the workload's extraEnv: use the chart's value, or set it once" .name) }}
{{- end }}
{{- if eq .name "FAIRPACT_DRAIN_DELAY" }}
{{- fail "FAIRPACT_DRAIN_DELAY cannot be set in extraEnv, because it would not be part of the pod's grace period: use preStopSeconds of the workload" }}
{{- end }}
{{- $_ := set $seen .name true }}
{{- end }}
{{- toYaml . }}
{{- end }}

{{/* DATABASE_URL of a component; log-server may have a separate database. Argument: (list $ "log-server"). */}}
{{- define "fairpact.databaseEnv" -}}
{{- $root := index . 0 -}}
{{- $part := ternary "logDatabase" "database" (and (eq (index . 1) "log-server") (not (empty $root.Values.secrets.logDatabase.existingSecret))) -}}
- name: DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "fairpact.secretName" (list $root $part) }}
      key: {{ include "fairpact.secretKey" (list $root $part) }}
{{- end }}

{{/* The key-set document: signing.keySet, or the set of the only signing key. */}}
{{- define "fairpact.keySet" -}}
{{- $s := .Values.signing -}}
{{- if $s.keySet -}}
{{- toJson $s.keySet -}}
{{- else -}}
{{- /* With dev://, /v1/status reports that the key is for trials. */ -}}
{{- $file := printf "%s:///run/fairpact/key/%s" (ternary "file" "dev" (ne $s.existingSecret.name "")) $s.existingSecret.key -}}
{{- $key := dict "uri" ($s.uri | default $file) "signs_from" 0 -}}
{{- with $s.publicKey }}{{ $_ := set $key "pubkey" . }}{{ end -}}
{{- toJson (dict "keys" (list $key)) -}}
{{- end -}}
{{- end }}

{{/* Settings of all three binaries. */}}
{{- define "fairpact.commonEnv" -}}
- name: FAIRPACT_KEY_SET_FILE
  value: /etc/fairpact/key-set/key-set.json
- name: FAIRPACT_APPEND_SECRET_FILE
  value: /run/fairpact/append/secret
- name: FAIRPACT_LOG_LEVEL
  value: {{ .Values.logLevel | quote }}
{{- if .Values.maintenance.readOnly }}
- name: FAIRPACT_READ_ONLY
  value: "true"
{{- end }}
{{- if .Values.otel.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .Values.otel.endpoint | quote }}
{{- range $name, $value := .Values.otel.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Settings of deal-api and deadline-worker. */}}
{{- define "fairpact.escrowEnv" -}}
- name: REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "fairpact.secretName" (list . "redis") }}
      key: {{ include "fairpact.secretKey" (list . "redis") }}
- name: FAIRPACT_SERVER_SECRET_FILE
  value: /run/fairpact/server/secret
- name: FAIRPACT_LOG_READ_URL
  value: http://{{ include "fairpact.fullname" . }}-log-read:{{ .Values.logServer.service.readPort }}
- name: FAIRPACT_LOG_APPEND_URL
  value: http://{{ include "fairpact.fullname" . }}-log-append:{{ .Values.logServer.service.appendPort }}
- name: FAIRPACT_ENTROPY_WINDOW
  value: {{ .Values.entropyWindow | quote }}
- name: FAIRPACT_KEEP_CONTENTS
  value: {{ .Values.keepContents | quote }}
- name: FAIRPACT_STRICT_BEACON
  value: {{ .Values.strictBeacon | quote }}
{{- with .Values.beacon.relays }}
- name: FAIRPACT_BEACON_RELAYS
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.beacon.chainHash }}
- name: FAIRPACT_BEACON_CHAIN_HASH
  value: {{ quote . }}
- name: FAIRPACT_BEACON_PUBLIC_KEY
  value: {{ required "beacon.publicKey is required with beacon.chainHash" $.Values.beacon.publicKey | quote }}
- name: FAIRPACT_BEACON_PERIOD
  value: {{ required "beacon.period is required with beacon.chainHash" $.Values.beacon.period | int64 | quote }}
- name: FAIRPACT_BEACON_GENESIS
  value: {{ required "beacon.genesis is required with beacon.chainHash" $.Values.beacon.genesis | int64 | quote }}
- name: FAIRPACT_BEACON_GENESIS_SEED
  value: {{ required "beacon.genesisSeed is required with beacon.chainHash" $.Values.beacon.genesisSeed | quote }}
- name: FAIRPACT_BEACON_ID
  value: {{ required "beacon.id is required with beacon.chainHash" $.Values.beacon.id | quote }}
{{- end }}
{{- end }}

{{/* Init containers of a workload. Argument: (list $ "deal-api"). */}}
{{- define "fairpact.initContainers" -}}
{{- $root := index . 0 -}}
{{- $v := include "fairpact.values" . | fromJson -}}
{{- if eq (include "fairpact.migrationMode" $root) "startup" }}
- name: migrate
  image: {{ include "fairpact.image" (list $root "deal-api") }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  command: [/fairpactctl, migrate]
  env:
    {{- include "fairpact.migrationEnv" $root | nindent 4 }}
  securityContext:
    {{- include "fairpact.containerSecurity" $root | nindent 4 }}
  resources: {{ toJson $root.Values.migration.resources }}
  {{- with $root.Values.extraVolumeMounts }}
  volumeMounts: {{ toJson . }}
  {{- end }}
{{- end }}
{{- if include "fairpact.signingSecret" $root }}
# The file of a file:// key must be readable only by its owner, but a Secret volume lets a group read its files. So this container copies the files.
- name: key-files
  image: {{ include "fairpact.image" (list $root "deal-api") }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  command: [/fairpactctl, key-files, /run/fairpact/key-secret, /run/fairpact/key]
  securityContext:
    {{- include "fairpact.containerSecurity" $root | nindent 4 }}
  resources: {{ toJson $v.resources }}
  volumeMounts:
    - {name: key-secret, mountPath: /run/fairpact/key-secret, readOnly: true}
    - {name: key, mountPath: /run/fairpact/key}
{{- end }}
{{- if and (eq (index . 1) "log-server") (include "fairpact.logKeySecret" $root) }}
- name: log-key-file
  image: {{ include "fairpact.image" (list $root "deal-api") }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  command: [/fairpactctl, key-files, /run/fairpact/log-key-secret, /run/fairpact/log-key]
  securityContext:
    {{- include "fairpact.containerSecurity" $root | nindent 4 }}
  resources: {{ toJson $v.resources }}
  volumeMounts:
    - {name: log-key-secret, mountPath: /run/fairpact/log-key-secret, readOnly: true}
    - {name: log-key, mountPath: /run/fairpact/log-key}
{{- end }}
{{- end }}

{{- define "fairpact.volumeMounts" -}}
{{- $root := index . 0 -}}
- {name: append, mountPath: /run/fairpact/append, readOnly: true}
{{- if ne (index . 1) "log-server" }}
- {name: server, mountPath: /run/fairpact/server, readOnly: true}
{{- end }}
{{- if include "fairpact.signingSecret" $root }}
- {name: key, mountPath: /run/fairpact/key, readOnly: true}
{{- end }}
- {name: key-set, mountPath: /etc/fairpact/key-set, readOnly: true}
{{- if and (eq (index . 1) "log-server") (include "fairpact.logKeySecret" $root) }}
- {name: log-key, mountPath: /run/fairpact/log-key, readOnly: true}
{{- end }}
{{- if and (eq (index . 1) "log-server") (include "fairpact.checkpoints" $root) }}
{{- if $root.Values.log.witnessPolicy }}
- {name: witness-policy, mountPath: /etc/fairpact/witness-policy, readOnly: true}
{{- end }}
{{- end }}
{{- with $root.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "fairpact.volumes" -}}
{{- $root := index . 0 -}}
- name: append
  secret:
    secretName: {{ include "fairpact.secretName" (list $root "append") }}
    defaultMode: 0440
    items: [{key: {{ include "fairpact.secretKey" (list $root "append") | quote }}, path: secret}]
{{- if ne (index . 1) "log-server" }}
- name: server
  secret:
    secretName: {{ include "fairpact.secretName" (list $root "server") }}
    defaultMode: 0440
    items: [{key: {{ include "fairpact.secretKey" (list $root "server") | quote }}, path: secret}]
{{- end }}
{{- if include "fairpact.signingSecret" $root }}
- name: key-secret
  secret:
    secretName: {{ include "fairpact.signingSecret" $root }}
    defaultMode: 0440
- name: key
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}
- name: key-set
  configMap: {name: {{ include "fairpact.fullname" $root }}-key-set}
{{- if and (eq (index . 1) "log-server") (include "fairpact.logKeySecret" $root) }}
- name: log-key-secret
  secret:
    secretName: {{ include "fairpact.logKeySecret" $root }}
    defaultMode: 0440
    items: [{key: {{ $root.Values.log.key.key | quote }}, path: log-key.pem}]
- name: log-key
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}
{{- if and (eq (index . 1) "log-server") (include "fairpact.checkpoints" $root) }}
{{- if $root.Values.log.witnessPolicy }}
- name: witness-policy
  downwardAPI:
    items: [{path: policy, fieldRef: {fieldPath: "metadata.annotations['fairpact.dev/witness-policy']"}}]
{{- end }}
{{- end }}
{{- with $root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A probe of the admin port. The workload's probes value overrides the defaults. Argument: (list $ "deal-api" "readiness" $defaults). */}}
{{- define "fairpact.probe" -}}
{{- $path := ternary "/readyz" "/healthz" (eq (index . 2) "readiness") -}}
{{- $own := get (include "fairpact.values" . | fromJson).probes (index . 2) -}}
{{- merge (dict "httpGet" (dict "path" $path "port" "admin")) $own (index . 3) | toJson -}}
{{- end }}

{{/* The Deployment of a workload. Argument: (dict "root" $ "component" "deal-api" "ports" (dict "http" 8080) "env" "…YAML…" "token" false). */}}
{{- define "fairpact.deployment" -}}
{{- $root := .root -}}
{{- $at := list $root .component -}}
{{- $v := include "fairpact.values" $at | fromJson -}}
{{- $labels := include "fairpact.selector" $at -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "fairpact.fullname" $root }}-{{ .component }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "fairpact.labels" $at | nindent 4 }}
  {{- include "fairpact.annotations" (list $root) | nindent 2 }}
spec:
  {{- if not (dig "autoscaling" "enabled" false $v) }}
  replicas: {{ $v.replicas }}
  {{- else }}
  {{- /* Without the field, Kubernetes would set a Deployment that had it to one replica. */}}
  {{- with (lookup "apps/v1" "Deployment" $root.Release.Namespace (printf "%s-%s" (include "fairpact.fullname" $root) .component)).spec }}
  replicas: {{ .replicas }}
  {{- end }}
  {{- end }}
  minReadySeconds: 2
  progressDeadlineSeconds: 300
  strategy:
    type: RollingUpdate
    rollingUpdate: {{ toJson $v.rollingUpdate }}
  selector:
    matchLabels:
      {{- $labels | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "fairpact.labels" $at | nindent 8 }}
        {{- with $v.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ .component }}
        {{- if and (eq .component "log-server") $root.Values.log.witnessPolicy }}
        fairpact.dev/witness-policy: {{ $root.Values.log.witnessPolicy | quote }}
        {{- end }}
        {{- with $v.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "fairpact.serviceAccountName" $at }}
      automountServiceAccountToken: {{ .token }}
      enableServiceLinks: false
      {{- include "fairpact.pullSecrets" $root | nindent 6 }}
      securityContext:
        {{- include "fairpact.podSecurity" $root | nindent 8 }}
      # The pause before SIGTERM, 28 s to drain, and 4 s to close database connections and send the last spans.
      terminationGracePeriodSeconds: {{ add $v.preStopSeconds 32 }}
      {{- with concat (include "fairpact.initContainers" $at | fromYamlArray) $v.extraInitContainers }}
      initContainers:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .component }}
          image: {{ include "fairpact.image" $at }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          ports:
            {{- range $name, $port := .ports }}
            - {name: {{ $name }}, containerPort: {{ $port }}}
            {{- end }}
          env:
            {{- $conns := list (dict "name" "FAIRPACT_DATABASE_CONNS" "value" (toString $v.databaseConns)) }}
            {{- $env := concat (include "fairpact.databaseEnv" $at | fromYamlArray) (include "fairpact.commonEnv" $root | fromYamlArray) (.env | fromYamlArray) $conns $root.Values.extraEnv $v.extraEnv }}
            {{- include "fairpact.env" $env | nindent 12 }}
          # Startup and liveness check only the process: a restart does not bring a database back.
          startupProbe: {{ include "fairpact.probe" (list $root .component "startup" (dict "periodSeconds" 1 "failureThreshold" 60)) }}
          livenessProbe: {{ include "fairpact.probe" (list $root .component "liveness" (dict "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 3)) }}
          readinessProbe: {{ include "fairpact.probe" (list $root .component "readiness" (dict "periodSeconds" 3 "timeoutSeconds" 3 "failureThreshold" 2)) }}
          {{- if $v.preStopSeconds }}
          lifecycle:
            preStop:
              sleep: {seconds: {{ $v.preStopSeconds }}}
          {{- end }}
          resources: {{ toJson $v.resources }}
          securityContext:
            {{- include "fairpact.containerSecurity" $root | nindent 12 }}
          volumeMounts:
            {{- include "fairpact.volumeMounts" $at | nindent 12 }}
        {{- with $v.extraContainers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $root.Values.dnsConfig }}
      dnsConfig: {{ toJson . }}
      {{- end }}
      volumes:
        {{- include "fairpact.volumes" $at | nindent 8 }}
      {{- /* Nodes by a spread constraint, zones by anti-affinity: the scheduler ignores a node that lacks the key of any constraint, and many clusters have no zone labels. */}}
      {{- $same := dict "labelSelector" (dict "matchLabels" (fromYaml $labels)) "matchLabelKeys" (list "pod-template-hash") }}
      {{- $spread := list (merge (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway") $same) }}
      {{- $zones := list }}
      {{- range $key, $weight := dict "kubernetes.io/hostname" 100 "topology.kubernetes.io/zone" 50 }}
      {{- $zones = append $zones (dict "weight" $weight "podAffinityTerm" (merge (dict "topologyKey" $key) $same)) }}
      {{- end }}
      {{- if $v.topologySpreadConstraints }}{{ $spread = $v.topologySpreadConstraints }}
      {{- else }}{{ $_ := set $v "affinity" (merge (dict) $v.affinity (dict "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" $zones))) }}
      {{- end }}
      topologySpreadConstraints: {{ toJson $spread }}
      {{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
      {{- with get $v $key }}
      {{ $key }}: {{ toJson . }}
      {{- end }}
      {{- end }}
{{- end }}
