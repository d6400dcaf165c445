{{- define "mailhub.labels" -}}
app.kubernetes.io/name: mailhub
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "mailhub.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "mailhub.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "mailhub.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "mailhub.settings" -}}
envFrom:
  - configMapRef: {name: {{ .Release.Name }}-settings}
  - secretRef: {name: {{ .Values.secretName }}}
{{- end }}

{{- define "mailhub.mounts" -}}
volumeMounts:
  - {name: home, mountPath: /var/lib/mailhub}
  - {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "mailhub.volumes" -}}
volumes:
  - name: home
    emptyDir: {sizeLimit: {{ .Values.homeSize }}}
  - name: tmp
    emptyDir: {sizeLimit: {{ .Values.tmpSize }}}
{{- end }}

{{/* A setting as text: YAML's numbers are floats to Helm, which would write 2000000000 as 2e+09. */}}
{{- define "mailhub.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ . | int64 | toString | quote }}{{ else }}{{ . | toString | quote }}{{ end }}
{{- end }}
