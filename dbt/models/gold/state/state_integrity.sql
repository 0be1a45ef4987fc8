-- The findings of all checks. Each subject has a model in dbt/models/integrity. docs/runbooks/integrity.md describes the checks.
{%- set findings = [
    ref('reference_findings'),
    ref('current_state_findings'),
    ref('local_membership_findings'),
    ref('sliding_sync_findings'),
    ref('event_findings'),
    ref('event_graph_findings'),
    ref('membership_findings'),
    ref('missing_edge_findings'),
    ref('lost_event_findings'),
    ref('state_change_findings'),
    ref('state_group_findings'),
    ref('incomplete_state_group_findings'),
    ref('room_creation_findings'),
    ref('room_statistics_findings'),
    ref('unreadable_value_findings'),
    ref('forward_extremity_findings'),
    ref('index_findings'),
] + ([ref('overdue_retention_findings')] if var('retention_enabled') else []) -%}
{%- for of_subject in findings %}
select check_name, severity, room_id, subject, expected, found from {{ of_subject }}
{{- "\n-- lost_event_findings examines these.\nwhere check_name <> 'json_without_event'" if loop.first }}
{%- if not loop.last %}
union all
{%- endif %}
{%- endfor %}
