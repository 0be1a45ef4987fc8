{%- set tables, unmatched = referenced_tables(), ref('unmatched_references') -%}
{%- set numbers = distinct_values(unmatched, 'reference') -%}
-- The rows that have the unmatched values. Several rows may have the same value and event: receipts of users that read the same
-- event, and edges of one event.
{%- for reference in declared_references() if numbers is none or reference.number in numbers %}
select distinct referring.reference, referring.id, referring.room_id, referring.event_id, unmatched.is_missing
from ({{ referring_values(reference, tables[reference.table]) }}) as referring
inner join {{ unmatched }} as unmatched
    on unmatched.reference = {{ reference.number }} and unmatched.value_hash = {{ value_hash('referring.id') }}
{{ "union all" if not loop.last }}
{%- else %}
select reference, '' as id, '' as room_id, '' as event_id, is_missing from {{ unmatched }} where false
{%- endfor %}
