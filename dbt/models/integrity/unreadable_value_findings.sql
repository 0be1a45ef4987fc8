-- Texts that the copy replaced because they cannot be projected (synapse_lakehouse.postgres.rows.select_sql). Synapse fails if it
-- cannot parse such a text. Unreadable internal metadata makes its event unloadable, which event_findings reports.
select
    'unreadable_value' as check_name,
    case when value = '"unreadable"' then 'fail' else 'warn' end as severity,
    room_id,
    subject,
    'a JSON object' as expected,
    replace(value, '"', '') as found
from (
    select
        room_id,
        'receipts_linearized.data ' || concat_ws(' ', receipt_type, user_id, thread_id) as subject,
        data as value
    from {{ source('synapse', 'receipts_linearized') }}
    union all
    select
        cast(null as string) as room_id,
        'account_data.content ' || account_data_type || ' ' || user_id as subject,
        content as value
    from {{ source('synapse', 'account_data') }}
) as texts
where value in ('"unreadable"', '"not an object"')
