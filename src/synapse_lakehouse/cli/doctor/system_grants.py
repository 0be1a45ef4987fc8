"""Check a role's privileges on PostgreSQL's own objects and on future objects."""

from typing import Any, Final

from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.postgres.connection import Connection

_ON_SYSTEM_OBJECTS: Final = """
with granted as (
  select pg_proc.oid::regprocedure::text as name, 'ROUTINE ' as kind, '' as columns, initprivs, acl.*
  from pg_proc left join pg_init_privs on objoid = pg_proc.oid and classoid = 'pg_proc'::regclass,
    aclexplode(proacl) as acl
  where pronamespace = 'pg_catalog'::regnamespace
  union all
  select pg_class.oid::regclass::text, '', '', initprivs, acl.*
  from pg_class left join pg_init_privs on objoid = pg_class.oid and classoid = 'pg_class'::regclass and objsubid = 0,
    aclexplode(relacl) as acl
  where relnamespace = 'pg_catalog'::regnamespace
  union all
  select attrelid::regclass::text, '', ' (' || quote_ident(attname) || ')', initprivs, acl.*
  from pg_attribute join pg_class on pg_class.oid = attrelid
    left join pg_init_privs on objoid = attrelid and classoid = 'pg_class'::regclass and objsubid = attnum,
    aclexplode(attacl) as acl
  where relnamespace = 'pg_catalog'::regnamespace
)
select privilege_type || columns, kind || name, grantee = 0 from granted
where grantee in (0, to_regrole(quote_ident(current_user)))
  and not (kind = 'ROUTINE ' and grantee = 0 and initprivs is null)
  and not exists (select from aclexplode(initprivs) as initial
                  where initial.grantee = granted.grantee and initial.privilege_type = granted.privilege_type)
order by 1, 2
"""
"""Privileges of our role or PUBLIC that PostgreSQL did not grant initially. PUBLIC may execute functions by default."""

_BY_DEFAULT: Final = """
select 'ALTER DEFAULT PRIVILEGES FOR ROLE ' || defaclrole::regrole
       || coalesce(' IN SCHEMA ' || nullif(defaclnamespace, 0)::regnamespace, ''),
       privilege_type || ' ON '
       || case defaclobjtype when 'r' then 'TABLES' when 'S' then 'SEQUENCES' when 'n' then 'SCHEMAS' end,
       grantee = 0
from pg_default_acl, aclexplode(defaclacl) as acl
where defaclobjtype in ('r', 'S', 'n') and grantee in (0, to_regrole(quote_ident(current_user)))
  and defaclrole <> to_regrole(quote_ident(current_user))
order by 1, 2
"""
"""Privileges of our role or PUBLIC on future tables, sequences and schemas. PostgreSQL itself grants none."""


def examine(role: str, connection: Connection) -> Findings:
    """Return a finding for each kind of unneeded privilege, with the statements that revoke it.

    :param role: the current role, quoted.
    """
    rows = connection.execute(_ON_SYSTEM_OBJECTS.encode()).fetchall()
    for is_public in (True, False):
        rights = [(right, name) for right, name, is_of_public in rows if is_of_public is is_public]
        if rights:
            grantee = "PUBLIC" if is_public else role
            message = f"{_subject(role, is_public)} has privileges on PostgreSQL's own objects: {_list_some(rights)}."
            revokes = " ".join(f"REVOKE {right} ON {name} FROM {grantee};" for right, name in rights)
            yield DoctorFinding(FindingLevel.WARN, "role", message, f"As a superuser run: {revokes}")
    defaults: list[tuple[Any, ...]] = connection.execute(_BY_DEFAULT.encode()).fetchall()
    if defaults:
        message = f"ALTER DEFAULT PRIVILEGES gives the role {role} privileges on objects that are created later."
        revokes = " ".join(
            f"{alter} REVOKE {right} FROM {'PUBLIC' if is_public else role};" for alter, right, is_public in defaults
        )
        yield DoctorFinding(
            FindingLevel.WARN, "role", message, f"Run as the role in the statements, or as a superuser: {revokes}"
        )


def _subject(role: str, is_public: bool) -> str:
    return f"The role {role}{', like every role,' * is_public}"


def _list_some(rights: list[tuple[str, str]]) -> str:
    listed = ", ".join(f"{right} on {name.removeprefix('ROUTINE ')}" for right, name in rights[:5])
    return f"{listed} and {len(rights) - 5} more" if len(rights) > 5 else listed
