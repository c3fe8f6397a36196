{{/* Names leave room for the suffix "-headless" within a DNS label of 63 characters. */}}
{{- define "posenc.name" -}}
{{- $default := contains "posenc" .Release.Name | ternary .Release.Name (printf "%s-posenc" .Release.Name) -}}
{{- .Values.fullnameOverride | default $default | trunc 54 | trimSuffix "-" -}}
{{- end }}

{{- define "posenc.selectorLabels" -}}
app.kubernetes.io/name: posenc
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end }}

{{- define "posenc.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "posenc.selectorLabels" . }}
{{- end }}

{{- define "posenc.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Name of the Secret with the server's certificate. Empty: no TLS. */}}
{{- define "posenc.tlsSecret" -}}
{{- if .Values.tls.secretName -}}
{{ .Values.tls.secretName }}
{{- else if .Values.tls.certManager.issuer.name -}}
{{ include "posenc.name" . }}-tls
{{- end -}}
{{- end }}

{{/* YAML: the server's flags, without dashes, and their values. */}}
{{- define "posenc.flags" -}}
{{- $flags := deepCopy .Values.settings -}}
{{- $listen := printf "0.0.0.0:%d" (int .Values.ports.grpc) -}}
{{- if .Values.sharedMemory.enabled -}}
{{- $listen = printf "%s,unix:/run/posenc/grpc.sock" $listen -}}
{{- $_ := set $flags "shared-memory-socket" "/run/posenc/memory.sock" -}}
{{- $_ := set $flags "shared-memory-prefix" .Values.sharedMemory.posixPrefix -}}
{{- $_ := set $flags "max-region-bytes" (printf "%sB" .Values.sharedMemory.size) -}}
{{- end -}}
{{- $_ := set $flags "listen" $listen -}}
{{- if .Values.rest.enabled -}}
{{- $_ := set $flags "http-listen" (printf "0.0.0.0:%d" (int .Values.ports.rest)) -}}
{{- end -}}
{{- $_ := set $flags "health-listen" (printf "0.0.0.0:%d" (int .Values.ports.health)) -}}
{{- if .Values.metrics.enabled -}}
{{- $_ := set $flags "metrics-listen" (printf "0.0.0.0:%d" (int .Values.ports.metrics)) -}}
{{- end -}}
{{- if .Values.tracing.endpoint -}}
{{- $_ := set $flags "otlp-endpoint" .Values.tracing.endpoint -}}
{{- end -}}
{{- $_ := set $flags "reflection" (ternary "on" "off" .Values.reflection) -}}
{{- $_ := set $flags "drain-notice" (int .Values.drain.noticeSeconds) -}}
{{- $_ := set $flags "drain-timeout" (int .Values.drain.timeoutSeconds) -}}
{{- if .Values.access.policyConfigMap -}}
{{- $_ := set $flags "policy" "/etc/posenc/policy/policy.json" -}}
{{- end -}}
{{- if .Values.models -}}
{{- $_ := set $flags "model-repository" "/etc/posenc/models" -}}
{{- end -}}
{{- if .Values.access.tokenSecret -}}
{{- $_ := set $flags "token-file" "/etc/posenc/tokens/tokens" -}}
{{- end -}}
{{- if include "posenc.tlsSecret" . -}}
{{- $_ := set $flags "tls-cert" "/etc/posenc/tls/tls.crt" -}}
{{- $_ := set $flags "tls-key" "/etc/posenc/tls/tls.key" -}}
{{- if ne .Values.tls.clientAuth "none" -}}
{{- $_ := set $flags "tls-client-auth" .Values.tls.clientAuth -}}
{{- $_ := set $flags "tls-client-ca" (printf "/etc/posenc/client-ca/%s" .Values.tls.clientCA.key) -}}
{{- end -}}
{{- end -}}
{{- toYaml $flags -}}
{{- end }}

{{- define "posenc.podSecurityContext" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ int . }}
runAsGroup: {{ int . }}
fsGroup: {{ int . }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "posenc.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Refuses values that contradict each other. values.schema.json checks each value alone. */}}
{{- define "posenc.validate" -}}
{{- $tls := include "posenc.tlsSecret" . -}}
{{- $auth := .Values.tls.clientAuth -}}
{{- if and (ne $auth "none") (not $tls) -}}
{{- fail (printf "tls.clientAuth must be none without TLS, but is %s: set tls.secretName or tls.certManager.issuer.name" $auth) -}}
{{- end -}}
{{- if and (ne $auth "none") (not .Values.tls.clientCA.secretName) -}}
{{- fail (printf "tls.clientCA.secretName must be set, because tls.clientAuth is %s" $auth) -}}
{{- end -}}
{{- if and (eq $auth "none") .Values.tls.clientCA.secretName -}}
{{- fail (printf "tls.clientAuth must be optional or required, because tls.clientCA.secretName is %s" .Values.tls.clientCA.secretName) -}}
{{- end -}}
{{- if and .Values.access.tokenSecret (not .Values.access.policyConfigMap) -}}
{{- fail (printf "access.policyConfigMap must be set, because access.tokenSecret is %s" .Values.access.tokenSecret) -}}
{{- end -}}
{{- if and .Values.access.tokenSecret (not $tls) -}}
{{- fail (printf "access.tokenSecret must be empty without TLS, but is %s: tokens are not accepted over plain TCP" .Values.access.tokenSecret) -}}
{{- end -}}
{{- if and .Values.models (index .Values.settings "model-repository") -}}
{{- fail (printf "settings.model-repository must be absent with models, but is %s: the chart mounts them as the repository" (index .Values.settings "model-repository")) -}}
{{- end -}}
{{- range $name, $scaling := dict "autoscaling" .Values.autoscaling "keda" .Values.keda -}}
{{- if and $scaling.enabled (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- fail (printf "%s.minReplicas must be at most %s.maxReplicas (%d), but is %d" $name $name (int $scaling.maxReplicas) (int $scaling.minReplicas)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (not (or .Values.autoscaling.cpuUtilizationPercent .Values.autoscaling.inFlightBytesPerServer)) -}}
{{- fail "autoscaling.cpuUtilizationPercent or autoscaling.inFlightBytesPerServer must be set, because autoscaling.enabled is true" -}}
{{- end -}}
{{- if .Values.keda.enabled -}}
{{- if .Values.autoscaling.enabled -}}
{{- fail "keda.enabled must be false, because autoscaling.enabled is true: two autoscalers would set the number of servers" -}}
{{- end -}}
{{- if not .Values.keda.serverAddress -}}
{{- fail "keda.serverAddress must be set, because keda.enabled is true" -}}
{{- end -}}
{{- if ne (empty .Values.keda.authentication.name) (empty .Values.keda.authentication.modes) -}}
{{- fail "keda.authentication.name and keda.authentication.modes must be set together" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.routes.rest.parentRefs (not .Values.rest.enabled) -}}
{{- fail "rest.enabled must be true, because routes.rest.parentRefs is set" -}}
{{- end -}}
{{- with .Values.routes -}}
{{- if and .grpc.parentRefs (deepEqual .grpc .rest) -}}
{{- fail "routes.rest.hostnames must differ from routes.grpc.hostnames, because routes.rest.parentRefs do not differ: a listener accepts one of the two routes" -}}
{{- end -}}
{{- if and (or .grpc.parentRefs .rest.parentRefs) $tls (not .caConfigMap) -}}
{{- fail "routes.caConfigMap must be set, because TLS is on: the gateway checks the server's certificate" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.podMonitor.enabled must be false, because metrics.serviceMonitor.enabled is true: each server would be scraped twice" -}}
{{- end -}}
{{- if not .Values.metrics.enabled -}}
{{- range $name, $on := dict "metrics.serviceMonitor.enabled" .Values.metrics.serviceMonitor.enabled
                             "metrics.podMonitor.enabled" .Values.metrics.podMonitor.enabled
                             "keda.enabled" (and .Values.keda.enabled (not .Values.keda.query))
                             "metrics.prometheusRule.enabled" .Values.metrics.prometheusRule.enabled
                             "autoscaling.inFlightBytesPerServer" (and .Values.autoscaling.enabled .Values.autoscaling.inFlightBytesPerServer) -}}
{{- if $on -}}
{{- fail (printf "metrics.enabled must be true, because %s is set" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.sharedMemory.posixPrefix (not .Values.sharedMemory.enabled) -}}
{{- fail (printf "sharedMemory.enabled must be true, because sharedMemory.posixPrefix is %s" .Values.sharedMemory.posixPrefix) -}}
{{- end -}}
{{- end }}
